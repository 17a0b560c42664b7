//! SHA-256 digests, by which manifests and components are named. The only algorithm that is accepted: registries may offer
//! others, and one that turns out to be weak would otherwise have to be refused in many places. Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as in OCI: `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of what a hasher has read.
    pub(crate) fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    /// All 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}"))
    }

    /// The first 12 digits: enough for a reader and for a metric label.
    pub fn short(&self) -> String {
        self.hex().chars().take(12).collect()
    }
}

impl From<[u8; 32]> for Digest {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    /// Parses `sha256:…`. The error says what is right, as in "write sha256: and 64 hexadecimal digits".
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "a digest is `sha256:` and 64 lower-case hexadecimal digits";
        let hex = text.strip_prefix("sha256:").ok_or(EXPECTED)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != 64 || !hex.bytes().all(is_hex) {
            return Err(EXPECTED);
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| EXPECTED)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| EXPECTED)?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lower_case_sha256_is_read_and_it_is_written_as_it_was_read() {
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), Digest::of(b""));
        let upper = text.to_ascii_uppercase();
        for wrong in ["", "sha256:", &text[7..], &text[..70], &upper, &text.replace("sha256", "sha512")] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
        assert!(format!("{text}0").parse::<Digest>().is_err());
        assert!(text.replace("e3b", "+3b").parse::<Digest>().is_err());
    }
}
