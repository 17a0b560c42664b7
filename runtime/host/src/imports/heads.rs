//! Counts the heads of requests that a guest builds against the memory of its call. Wasmtime bounds a single set of header
//! fields and the number of handles. But a guest may build thousands of requests that it never sends, and wasmtime takes an
//! authority of any length.
//!
//! Each function here replaces one of wasmtime's of the same name, counts, and calls it.

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::p2::HeaderResult;
use wasmtime_wasi_http::p2::bindings::http::types::{
    HeaderError, Host as _, HostFields as _, HostOutgoingRequest as _, Method, Scheme,
};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;
use wasmtime_wasi_http::{FieldMap, WasiHttpView as _};

use crate::egress::fields_bytes;
use crate::fault::Fault;
use crate::limits::{HEAD_OVERHEAD, MAX_AUTHORITY_BYTES, MAX_TOKEN_BYTES};
use crate::sandbox::Sandbox;

/// The interface of wasmtime whose functions are replaced.
const TYPES: &str = "wasi:http/types@0.2.12";

type Store<'a> = StoreContextMut<'a, Sandbox>;
type Fields = Resource<FieldMap>;
type Request = Resource<HostOutgoingRequest>;
/// What a setter of a request returns.
type Set = wasmtime::Result<(Result<(), ()>,)>;

/// Replaces the functions by which a guest builds heads.
pub(super) fn count(linker: &mut Linker<Sandbox>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    count_fields(linker)?;
    count_requests(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

fn count_fields(linker: &mut Linker<Sandbox>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[static]fields.from-list",
        |mut store: Store<'_>, (entries,): (Vec<(String, Vec<u8>)>,)| {
            charge(
                &mut store,
                entries.iter().map(|(name, value)| name.len() + value.len() + HEAD_OVERHEAD).sum(),
            )?;
            let fields = store.data_mut().http().from_list(entries);
            Ok((header_result(&mut store, fields)?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.set",
        |mut store: Store<'_>, (fields, name, values): (Fields, String, Vec<Vec<u8>>)| {
            charge(&mut store, values.iter().map(|value| name.len() + value.len() + HEAD_OVERHEAD).sum())?;
            let set = store.data_mut().http().set(fields, name, values);
            Ok((header_result(&mut store, set)?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.append",
        |mut store: Store<'_>, (fields, name, value): (Fields, String, Vec<u8>)| {
            charge(&mut store, name.len() + value.len() + HEAD_OVERHEAD)?;
            let appended = store.data_mut().http().append(fields, name, value);
            Ok((header_result(&mut store, appended)?,))
        },
    )?;
    types.func_wrap("[method]fields.clone", |mut store: Store<'_>, (fields,): (Fields,)| {
        let bytes = fields_bytes(store.data_mut().http().table.get(&fields)?);
        charge(&mut store, bytes)?;
        let mut http = store.data_mut().http();
        Ok((wasmtime_wasi_http::p2::bindings::http::types::HostFields::clone(&mut http, fields)?,))
    })
}

fn count_requests(linker: &mut Linker<Sandbox>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: Store<'_>, (request, method): (Request, Method)| -> Set {
            let bytes = if let Method::Other(name) = &method { name.len() } else { 0 };
            if bytes > MAX_TOKEN_BYTES {
                return Ok((Err(()),));
            }
            charge(&mut store, bytes)?;
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-scheme",
        |mut store: Store<'_>, (request, scheme): (Request, Option<Scheme>)| -> Set {
            let bytes = if let Some(Scheme::Other(name)) = &scheme { name.len() } else { 0 };
            if bytes > MAX_TOKEN_BYTES {
                return Ok((Err(()),));
            }
            charge(&mut store, bytes)?;
            Ok((store.data_mut().http().set_scheme(request, scheme)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: Store<'_>, (request, authority): (Request, Option<String>)| -> Set {
            let bytes = authority.as_ref().map_or(0, String::len);
            if bytes > MAX_AUTHORITY_BYTES {
                return Ok((Err(()),));
            }
            charge(&mut store, bytes)?;
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Request, Option<String>)| -> Set {
            charge(&mut store, path.as_ref().map_or(0, String::len))?;
            Ok((store.data_mut().http().set_path_with_query(request, path)?,))
        },
    )
}

fn charge(store: &mut Store<'_>, bytes: usize) -> Result<(), Fault> {
    Ok(store.data_mut().egress.charge_head(bytes)?)
}

/// The result as the guest gets it, or the error that ends the call.
fn header_result<T>(
    store: &mut Store<'_>,
    result: HeaderResult<T>,
) -> wasmtime::Result<Result<T, HeaderError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(store.data_mut().http().convert_header_error(error)?)),
    }
}
