//! The list of attacks that the gate and the sandbox must withstand. The number in a test's name is its row in the list. The
//! tests here need a socket. Tests that need a guest are among the host's tests of the sandbox, and those that need neither
//! are next to the code that decides. `deploy/dev/check attacks` reads this list and requires a test for each row:
//!
//! ```text
//! 01  metadata services by address and by name           blocked before the connection
//! 02  the same in every spelling of the address          blocked in canonical form
//! 03  names that turn to such addresses, or sometimes    only checked addresses are dialed
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
//! 15  connections, limits and tokens of other providers  not reached
//! 16  proxies in the environment                         ignored
//! 17  secrets in errors, logs, metrics, traces           none
//! 18  loops, bombs and floods of the guest               a fault of its own for each, memory bounded
//! 19  imports of sockets and of unknown interfaces       denied, refused at load
//! 20  compiled code that was tampered with               compiled again
//! 21  guesses of a credential that a cloud repeats       every wrong guess is answered alike
//! 22  the credential in other forms, in parts, zipped    refused
//! 23  paths that servers decode or cut differently       refused under a grant of paths
//! 24  hosts, paths and bodies that are long to read      refused first, read once, charged to the call
//! ```

mod echo;
mod exchanges;
mod places;
mod secrets;
