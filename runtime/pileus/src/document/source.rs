//! The `source` of a document: the component as a file, or as an image in a registry, and how to reach the registry.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use jiff::SignedDuration;
use pileus_host::swap::Follow;
use pileus_loader::{CredentialSource, Digest, Loader, Reference, RegistrySettings, Repository, SecretFile};
use semver::{Version, VersionReq};

use super::credentials::secret_name;
use super::fields::Fields;
use super::non_empty;
use super::origin::Origin;
use super::swap::time;
use crate::error::Error;

/// Where the component comes from.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// A file of this machine.
    File(PathBuf),
    /// An artifact in a registry.
    Image(ImageSource),
}

/// An artifact in a registry, and how to get it.
#[derive(Debug, Clone)]
pub(crate) struct ImageSource {
    /// Which one.
    pub(crate) image: Image,
    /// Where the credentials of the registry come from; without any, they are not needed.
    pub(crate) credentials: Vec<CredentialSource>,
    /// How to reach registries that need it.
    pub(crate) registries: Vec<RegistrySettings>,
}

/// Which artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Image {
    /// What a tag or a digest names.
    Reference(Reference),
    /// The highest version of a repository within a range.
    Range(Repository, VersionRange),
}

/// A range of semantic versions, as in `>=1.2, <2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VersionRange {
    text: String,
    range: VersionReq,
}

impl Image {
    /// Where it is.
    pub(crate) fn repository(&self) -> &Repository {
        match self {
            Self::Reference(reference) => &reference.repository,
            Self::Range(repository, _) => repository,
        }
    }
}

impl Source {
    /// The digest by which an image is pinned.
    pub(crate) fn pinned(&self) -> Option<Digest> {
        match self {
            Self::Image(ImageSource { image: Image::Reference(reference), .. }) => reference.digest,
            Self::Image(ImageSource { image: Image::Range(..), .. }) | Self::File(_) => None,
        }
    }

    /// How a swap follows this source. A file is followed like a tag: it is read again, and may have changed.
    pub(crate) fn follow(&self) -> Follow {
        match self {
            Self::File(path) => Follow::Tag(format!("file:{}", path.display())),
            // Another repository has other components, also under the same tag.
            Self::Image(ImageSource { image: Image::Range(repository, range), .. }) => {
                Follow::Range(format!("{repository} {range}"))
            }
            Self::Image(ImageSource { image: Image::Reference(reference), .. }) => match reference.digest {
                Some(digest) => Follow::Digest(digest),
                // The parser refuses a reference with neither.
                None => Follow::Tag(reference.to_string()),
            },
        }
    }
}

impl VersionRange {
    /// Finds the highest version in this range that a repository has.
    ///
    /// # Errors
    /// [`Error::Source`] if no tag is such a version, or the registry doesn't say.
    pub(crate) async fn newest(&self, loader: &Loader, repository: &Repository) -> Result<Reference, Error> {
        let tags = loader.tags(repository).await?;
        let missing = || pileus_loader::Error::NotFound {
            place: format!("a version {self} among the tags of {repository}"),
        };
        let tag = self.highest(tags.iter().map(String::as_str)).ok_or_else(missing)?;
        Ok(Reference { repository: repository.clone(), tag: Some(tag.to_owned()), digest: None })
    }

    /// Whether a text is a version in this range.
    pub(crate) fn contains(&self, version: &str) -> bool {
        Version::parse(version).is_ok_and(|version| self.range.matches(&version))
    }

    /// The tag with the highest version in this range. A tag is a version if it is a complete one, as in `1.2.3` or `v1.2.3`:
    /// `1.2` is a name that moves. Of two tags with the same version, the one without `v` is taken.
    pub(crate) fn highest<'a>(&self, tags: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
        let version = |tag: &'a str| {
            let version = Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()?;
            self.range.matches(&version).then_some((version, !tag.starts_with('v'), tag))
        };
        tags.into_iter().filter_map(version).max().map(|(_, _, tag)| tag)
    }
}

impl FromStr for VersionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = VersionReq::parse(text)
            .map_err(|error| format!("invalid range {text:?}: {error}; write it as in \">=1.2, <2\""))?;
        Ok(Self { text: text.to_owned(), range })
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The fields that only an image has.
const OF_IMAGES: [&str; 4] = ["versions", "pullSecret", "dockerConfig", "registries"];

/// Reads the field `source`: the source, and how often it is looked at for a change.
pub(super) fn source(spec: &mut Fields<'_>, origin: &Origin<'_>) -> (Option<Source>, SignedDuration) {
    let mut fields = spec.object("source");
    let interval = fields.optional("interval", |text| time(text, "10s", "24h"));
    let present = OF_IMAGES.map(|name| (name, fields.has(name)));
    let source = match (fields.has("file"), fields.has("image")) {
        (true, false) => {
            for (name, _) in present.into_iter().filter(|(_, is_present)| *is_present) {
                fields.wrong_at(name, "it has no effect on a file; remove it");
            }
            let instead = "push the component to a registry, and name it in image";
            fields.required("file", |file| origin.file_of_operator(file, instead)).map(Source::File)
        }
        (false, true) => image(&mut fields, origin).map(Source::Image),
        (true, true) => {
            // Also says whether the document may name a file at all.
            fields.required("file", |file| origin.file_of_operator(file, "remove it"));
            fields.none("a provider has one source; keep file or image")
        }
        (false, false) => fields.none("a provider needs a source; add image or file"),
    };
    fields.end();
    (source, interval.unwrap_or(SignedDuration::from_mins(5)))
}

fn image(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<ImageSource> {
    let image = if fields.has("versions") {
        let range = fields.required("versions", VersionRange::from_str);
        let repository = fields.required("image", |text| {
            text.parse().map_err(|error: pileus_loader::Error| format!("{error}; `versions` chooses the tag"))
        });
        repository.zip(range).map(|(repository, range)| Image::Range(repository, range))
    } else {
        let reference = |text: &str| text.parse().map_err(|error: pileus_loader::Error| error.to_string());
        fields.required("image", reference).map(Image::Reference)
    };
    let credentials = credentials(fields, origin);
    if let Some(image) = &image
        && let Err(problem) = origin.registry(&image.repository().registry)
    {
        fields.wrong_at("image", problem);
    }
    let registries: Vec<_> =
        fields.objects("registries", |fields| registry(fields, origin)).into_iter().flatten().collect();
    for (index, one) in registries.iter().enumerate() {
        if registries.iter().take(index).any(|other| other.registry == one.registry) {
            fields.wrong_at("registries", format!("{} is listed twice; keep one entry", one.registry));
        }
    }
    Some(ImageSource { image: image?, credentials, registries })
}

fn credentials(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Vec<CredentialSource> {
    let config = match (fields.has("pullSecret"), fields.has("dockerConfig")) {
        (true, false) => fields.object_of("pullSecret", "{name: NAME}", |fields| {
            Some(origin.secrets().pull_secret(&fields.required("name", secret_name)?))
        }),
        (_, true) => {
            if fields.has("pullSecret") {
                fields.wrong("a registry's credentials have one place; keep pullSecret or dockerConfig");
            }
            let read =
                |path: &str| origin.file_of_operator(path, "create a pull secret and name it in pullSecret");
            fields.required("dockerConfig", read).map(|path| Arc::new(SecretFile::new(path)) as Arc<_>)
        }
        (false, false) => None,
    };
    config.map(|config| CredentialSource::DockerConfig { config, helpers: false }).into_iter().collect()
}

fn registry(fields: &mut Fields<'_>, origin: &Origin<'_>) -> Option<RegistrySettings> {
    let registry = fields.required("registry", |text| origin.registry(&non_empty(text)?));
    let plain_http = fields.has("plainHTTP").then(|| fields.boolean("plainHTTP", false));
    let ca_bundle = fields.optional("caBundle", |path| origin.file(path));
    let mirrors = fields.list("mirrors", &[], |text| origin.registry(&non_empty(text)?));
    let token_hosts = fields.list("tokenHosts", &[], |text| origin.registry(&host(text)?));
    let addresses = fields.list("addresses", &[], |text| origin.addresses(text));
    let registry = registry?;
    let settings = RegistrySettings { registry, plain_http, ca_bundle, mirrors, token_hosts, addresses };
    settings.check().map_err(|error| fields.wrong(error.to_string())).ok()?;
    Some(settings)
}

/// Parses a name or an address, without a port.
fn host(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    if (1..=253).contains(&text.len()) && text.chars().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "invalid host {text:?}; write it in lower case and without a port, as in auth.example.com"
        ))
    }
}

#[cfg(test)]
mod tests {
    use pileus_gate::Problem;

    use super::*;
    use crate::document::tests::parse;

    #[test]
    fn the_highest_complete_version_in_the_range_is_followed() {
        let tags = [
            "latest",
            "1",
            "1.2",
            "v1.2.0",
            "1.10.0",
            "1.9.3",
            "v1.10.0",
            "2.0.0",
            "2.0.0-rc.1",
            "1.11.0-rc.1",
            "sha256-00.sig",
            "01.99.0",
            "1.99",
            "V1.98.0",
            "1.2.3.4",
        ];
        for (range, expected) in [
            (">=1.2, <2", Some("1.10.0")),
            ("1.2", Some("1.10.0")),
            ("~1.2", Some("v1.2.0")),
            ("=1.9.3", Some("1.9.3")),
            ("*", Some("2.0.0")),
            (">=2.0.0-rc.0, <2.0.0", Some("2.0.0-rc.1")),
            (">=1.11.0-rc.0, <1.11.0", Some("1.11.0-rc.1")),
            (">=3", None),
        ] {
            let range: VersionRange = range.parse().unwrap();
            assert_eq!(range.highest(tags), expected, "{range}");
        }
        for wrong in ["latest", ">=1 <2", "1.x.2", ">=", "1.2.3.4"] {
            assert!(wrong.parse::<VersionRange>().is_err(), "{wrong}");
        }
    }

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn read(source: &str) -> Result<Source, Vec<String>> {
        let source = source.replace("DIGEST", DIGEST);
        let text = format!(
            "apiVersion: pileus.dev/v1alpha1\nkind: CloudProvider\nmetadata: {{name: a}}\nspec: {{source: {source}, trust: \
             {{insecure: true}}}}\n"
        );
        let strings = |found: Vec<Problem>| found.iter().map(ToString::to_string).collect();
        parse(&text, "/etc/pileus").map(|document| document.source).map_err(strings)
    }

    #[test]
    fn a_source_is_a_file_or_an_image_and_says_what_is_followed() {
        let follow = |source: &str| read(source).expect(source).follow();
        assert_eq!(follow("{file: a.wasm}"), Follow::Tag("file:/etc/pileus/a.wasm".to_owned()));
        assert_eq!(follow("{image: ghcr.io/a/b:1.2}"), Follow::Tag("ghcr.io/a/b:1.2".to_owned()));
        assert_ne!(follow("{image: ghcr.io/a/b:1.2}"), follow("{image: ghcr.io/a/c:1.2}"));
        let pinned = Follow::Digest(DIGEST.parse().unwrap());
        assert_eq!(follow("{image: 'ghcr.io/a/b@DIGEST'}"), pinned);
        assert_eq!(follow("{image: 'ghcr.io/a/b:1.2@DIGEST'}"), pinned);
        assert_eq!(
            follow("{image: ghcr.io/a/b, versions: '>=1, <2'}"),
            Follow::Range("ghcr.io/a/b >=1, <2".to_owned())
        );
    }

    #[test]
    fn an_image_says_how_its_registry_is_reached() {
        let all = "{image: ghcr.io/a/b:1, pullSecret: {name: regcred}, registries: [{registry: ghcr.io, plainHTTP: false, \
                   caBundle: ca.pem, mirrors: [mirror.corp/ghcr], tokenHosts: [auth.corp], addresses: [10.0.0.0/8]}, \
                   {registry: 'mirror.corp', plainHTTP: true}]}";
        let Ok(Source::Image(ImageSource { image, credentials, registries })) = read(all) else {
            panic!("an image")
        };
        assert_eq!(image, Image::Reference("ghcr.io/a/b:1".parse().unwrap()));
        let shown = format!("{credentials:?}");
        assert!(
            shown.contains("key .dockerconfigjson of Secret regcred") && shown.contains("helpers: false"),
            "{shown}"
        );
        let expected = RegistrySettings {
            registry: "ghcr.io".to_owned(),
            plain_http: Some(false),
            ca_bundle: Some("/etc/pileus/ca.pem".into()),
            mirrors: vec!["mirror.corp/ghcr".to_owned()],
            token_hosts: vec!["auth.corp".to_owned()],
            addresses: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let plain = RegistrySettings {
            registry: "mirror.corp".to_owned(),
            plain_http: Some(true),
            ..RegistrySettings::default()
        };
        assert_eq!(registries, [expected, plain]);
        let file = read("{image: ghcr.io/a/b:1, dockerConfig: config.json}");
        let Ok(Source::Image(ImageSource { credentials, .. })) = file else { panic!("an image") };
        assert!(format!("{credentials:?}").contains("/etc/pileus/config.json"), "{credentials:?}");
    }

    #[test]
    fn what_is_wrong_with_a_source_is_said() {
        for (source, expected) in [
            ("{}", ": a provider needs a source; add image or file"),
            ("{file: a, image: 'ghcr.io/a:1'}", ": a provider has one source; keep file or image"),
            ("{file: ''}", ".file: expected a non-empty string"),
            ("{file: a, versions: '1'}", ".versions: it has no effect on a file; remove it"),
            ("{file: a, pullSecret: {name: a}}", ".pullSecret: it has no effect"),
            ("{file: a, dockerConfig: a}", ".dockerConfig: it has no effect"),
            ("{file: a, registries: []}", ".registries: it has no effect"),
            (
                "{file: a, digest: b}",
                ".digest: unknown field; known fields are dockerConfig, file, image, interval,",
            ),
            ("{image: ghcr.io/a/b}", ".image: invalid reference \"ghcr.io/a/b\": it has no version"),
            ("{image: a}", ".image: invalid reference \"a\": it names no registry"),
            (
                "{image: 'ghcr.io/a/b:1', versions: '1'}",
                ".image: invalid reference \"ghcr.io/a/b:1\": a repository has neither",
            ),
            ("{image: 'ghcr.io/a/b@DIGEST', versions: '1'}", ".image: "),
            ("{image: ghcr.io/a/b, versions: latest}", ".versions: invalid range \"latest\": "),
            (
                "{image: 'ghcr.io/a:1', pullSecret: regcred}",
                ".pullSecret: expected {name: NAME}; found a string",
            ),
            (
                "{image: 'ghcr.io/a:1', pullSecret: {name: A}}",
                ".pullSecret.name: expected 1 to 253 lower-case",
            ),
            (
                "{image: 'ghcr.io/a:1', pullSecret: {name: a}, dockerConfig: b}",
                ": a registry's credentials have one place",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{}]}",
                ".registries[0].registry: required field is missing",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a}]}",
                ".registries[0]: invalid settings of registry a: its",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a.b, mirrors: [c]}]}",
                ".registries[0]: invalid settings of registry a.b: invalid mirror \"c\"",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a.b, plainHTTP: true, caBundle: c}]}",
                ".registries[0]: invalid settings of registry a.b: a bundle",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a.b}, {registry: a.b}]}",
                ".registries: a.b is listed twice",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a.b, tokenHosts: ['a:1']}]}",
                ".registries[0].tokenHosts[0]: inv",
            ),
            (
                "{image: 'ghcr.io/a:1', registries: [{registry: a.b, addresses: [x]}]}",
                ".registries[0].addresses[0]: inv",
            ),
        ] {
            let found = read(source).unwrap_err();
            let expected = format!("spec.source{expected}");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{source}: {found:?}");
        }
    }
}
