//! The list of attacks that a gate must withstand, as far as it is about the wire: the number in a name is the row of the
//! list. What takes a guest is among the host's tests of the sandbox, and what takes no socket beside what decides it.
//! `deploy/dev/check attacks` reads this list, and wants a test for each row:
//!
//! ```text
//! 01  metadata services by address and by name           blocked before the connection
//! 02  the same in every spelling of the address          blocked in canonical form
//! 03  names that turn to such addresses, or sometimes    only checked addresses are dialled
//! 04  redirects                                          given to the provider, never followed
//! 05  authorities with two readings                      canonical or refused
//! 06  paths with two readings                            refused
//! 07  framing and hop-by-hop headers, trailers           stripped or refused, one framing arrives
//! 08  credentials and metadata headers of the provider   stripped without an error
//! 09  headers too many, too long, with control bytes     refused
//! 10  request bodies without end, in tiny pieces         capped in bytes and pieces
//! 11  answers without end, slow, huge heads, compressed  capped, timed, never decompressed
//! 12  answers that are opened and never read             bounded, gone with the call
//! 13  timeouts of zero, or huge                          clamped
//! 14  requests left unfinished                           a read aborted, a write finished, counted once
//! 15  what another provider has                          not reached
//! 16  proxies in the environment                         ignored
//! 17  secrets in errors, logs, metrics, traces           none
//! 18  loops, bombs and floods of the guest               a fault of its own for each, memory bounded
//! 19  imports of sockets and of unknown interfaces       denied, refused at load
//! 20  compiled code that was tampered with               compiled anew
//! ```

mod echo;
mod exchanges;
mod places;
mod secrets;
