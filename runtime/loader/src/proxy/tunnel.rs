//! Opens a tunnel through a proxy, by `CONNECT` (RFC 9110) or SOCKS version 5 (RFC 1928, RFC 1929).

use std::io;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

use crate::proxy::{Proxy, ProxyScheme};

/// The head of a proxy's answer.
const MAX_HEAD: usize = 16 * 1024;

impl Proxy {
    /// Asks for a tunnel to a server, on a connection to the proxy. `host` is a name, which the proxy resolves, or an address
    /// as in a URL. What follows on the connection is the server's.
    ///
    /// # Errors
    /// Where the proxy refuses or breaks off. The message has no password.
    pub async fn open_tunnel(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        match self.scheme {
            ProxyScheme::Http | ProxyScheme::Https => connect(stream, host, port, self).await,
            ProxyScheme::Socks5 => socks5(stream, host, port, self).await,
        }
    }
}

/// Asks for a tunnel by `CONNECT`.
async fn connect(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    port: u16,
    proxy: &Proxy,
) -> io::Result<()> {
    let login = proxy.login.as_ref().map(|(user, password)| {
        let plain = Zeroizing::new(format!("{user}:{}", password.as_str()));
        format!("Proxy-Authorization: Basic {}\r\n", BASE64_STANDARD.encode(plain.as_bytes()))
    });
    let login = Zeroizing::new(login.unwrap_or_default());
    let target = format!("{host}:{port}");
    let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{}\r\n", login.as_str());
    stream.write_all(Zeroizing::new(request).as_bytes()).await?;
    stream.flush().await?;
    let mut head = Vec::new();
    // A byte at a time: what comes after the head is the server's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MAX_HEAD {
            return Err(io::Error::other("the head of its answer is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&head);
    match line.split_ascii_whitespace().nth(1) {
        Some("200") if line.starts_with("HTTP/1.") => Ok(()),
        Some("407") => Err(io::Error::other("it asks for a login, or refuses the one in its URL (407)")),
        Some(code) if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(io::Error::other(format!("it answers CONNECT {target} with {code}")))
        }
        _ => Err(io::Error::other("its answer is not HTTP")),
    }
}

/// Asks for a tunnel by SOCKS version 5. The proxy resolves a name.
async fn socks5(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    host: &str,
    port: u16,
    proxy: &Proxy,
) -> io::Result<()> {
    const NO_LOGIN: u8 = 0;
    const LOGIN: u8 = 2;
    let short =
        |text: &str| u8::try_from(text.len()).map_err(|_| io::Error::other("a name is over 255 bytes"));
    let method = if proxy.login.is_some() { LOGIN } else { NO_LOGIN };
    stream.write_all(&[5, 1, method]).await?;
    stream.flush().await?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).await?;
    if answer != [5, method] {
        return Err(io::Error::other("it isn't SOCKS 5, or refuses the way of the login"));
    }
    if let Some((user, password)) = &proxy.login {
        let mut login = Zeroizing::new(vec![1, short(user)?]);
        login.extend_from_slice(user.as_bytes());
        login.push(short(password)?);
        login.extend_from_slice(password.as_bytes());
        stream.write_all(&login).await?;
        stream.flush().await?;
        stream.read_exact(&mut answer).await?;
        if answer != [1, 0] {
            return Err(io::Error::other("it refuses the login"));
        }
    }
    let mut request = vec![5, 1, 0];
    match host.trim_start_matches('[').trim_end_matches(']').parse() {
        Ok(std::net::IpAddr::V4(ip)) => request.extend([1].into_iter().chain(ip.octets())),
        Ok(std::net::IpAddr::V6(ip)) => request.extend([4].into_iter().chain(ip.octets())),
        Err(_) => request.extend([3, short(host)?].into_iter().chain(host.bytes())),
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [5, code, _, kind] = head else { return Err(io::Error::other("it isn't SOCKS 5")) };
    if code != 0 {
        return Err(io::Error::other(format!(
            "it answers the request for {host}:{port} with SOCKS code {code}"
        )));
    }
    let address = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(stream.read_u8().await?),
        _ => return Err(io::Error::other("its answer has an unknown kind of address")),
    };
    let mut bound = vec![0; address + 2];
    stream.read_exact(&mut bound).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the proxy got, and the result, where it gives these answers, each after something came.
    async fn tunnel(url: &str, host: &str, answers: &[&[u8]]) -> (Vec<u8>, Result<(), String>) {
        let (mut near, mut far) = tokio::io::duplex(64 * 1024);
        let proxy = Proxy::parse(url).unwrap();
        let ask = async {
            let opened = match proxy.scheme {
                ProxyScheme::Socks5 => socks5(&mut near, host, 6443, &proxy).await,
                _ => connect(&mut near, host, 6443, &proxy).await,
            };
            drop(near);
            opened.map_err(|error| error.to_string())
        };
        let answer = async {
            let mut got = Vec::new();
            for answer in answers {
                let mut part = [0; 1024];
                let length = far.read(&mut part).await.unwrap();
                got.extend_from_slice(&part[..length]);
                far.write_all(answer).await.unwrap();
            }
            got
        };
        let (opened, got) = tokio::join!(ask, answer);
        (got, opened)
    }

    #[tokio::test]
    async fn a_tunnel_is_open_after_200_and_each_refusal_says_why() {
        let ok = b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n".as_slice();
        let (got, opened) = tunnel("http://me:p%40ss@proxy", "[fd00::1]", &[ok]).await;
        assert_eq!(opened, Ok(()));
        let request = "CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n\
                       Proxy-Authorization: Basic bWU6cEBzcw==\r\n\r\n";
        assert_eq!(String::from_utf8(got).unwrap(), request);
        let long = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), [b'x'; MAX_HEAD].as_slice()].concat();
        for (answer, expected) in [
            (b"HTTP/1.0 200 OK\r\n\r\n".as_slice(), None),
            (b"HTTP/1.1 407 Authentication Required\r\n\r\n", Some("asks for a login")),
            (b"HTTP/1.1 503 Unavailable\r\n\r\n", Some("CONNECT api:6443 with 503")),
            (b"SSH-2.0 planted\r\n\r\n", Some("not HTTP")),
            (&long, Some("too long")),
        ] {
            let (_, opened) = tunnel("http://proxy", "api", &[answer]).await;
            match expected {
                None => assert_eq!(opened, Ok(())),
                Some(part) => assert!(opened.as_ref().is_err_and(|error| error.contains(part)), "{opened:?}"),
            }
        }
    }

    #[tokio::test]
    async fn socks_asks_for_a_name_or_an_address_with_and_without_a_login() {
        let done = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00".as_slice();
        let (got, opened) = tunnel("socks5://proxy", "api", &[b"\x05\x00", done]).await;
        assert_eq!(
            (got.as_slice(), opened),
            (b"\x05\x01\x00\x05\x01\x00\x03\x03api\x19\x2b".as_slice(), Ok(()))
        );
        let (got, opened) =
            tunnel("socks5://me:pw@proxy", "10.1.2.3", &[b"\x05\x02", b"\x01\x00", done]).await;
        let asked = b"\x05\x01\x02\x01\x02me\x02pw\x05\x01\x00\x01\x0a\x01\x02\x03\x19\x2b".as_slice();
        assert_eq!((got.as_slice(), opened), (asked, Ok(())));
        for (url, answers, expected) in [
            ("socks5://proxy", [b"\x05\xff".as_slice(), b""], "refuses the way"),
            ("socks5://me:pw@proxy", [b"\x05\x02", b"\x01\x01"], "refuses the login"),
            ("socks5://proxy", [b"\x05\x00", b"\x05\x05\x00\x01\x00\x00\x00\x00\x00\x00"], "SOCKS code 5"),
        ] {
            let (_, opened) = tunnel(url, "api", &answers).await;
            assert!(opened.as_ref().is_err_and(|error| error.contains(expected)), "{url}: {opened:?}");
        }
    }
}
