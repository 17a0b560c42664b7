//! Which provider a Node belongs to where several providers run, and which provider may run beside which others.
//!
//! A Node with a provider ID belongs to the provider that has the scheme of that ID. Before a Node has one, it belongs to the
//! provider whose node selector matches its labels, or, where no selector does, to the provider without a selector. A Node
//! that the selectors of two providers match belongs to neither, and neither does one with an unknown scheme: another
//! cloud-controller-manager may serve it.
//!
//! [`crate::nodes::Nodes`] has the claims, and adds the owner to the facts of each Node. So a controller sees a change of
//! another provider's claim as a change of Nodes, and needs no restart.
//!
//! Pure.

#[cfg(test)]
mod scenarios;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use pileus_cloud::ProviderId;

use crate::facts::Labels;
use crate::facts::service::NodeSelector;

/// What a provider claims for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The operator's name for the provider.
    pub name: String,
    /// When its document was created. Of two claims that overlap, the older one stands.
    pub created_at: Timestamp,
    /// The schemes of its provider IDs.
    pub schemes: Vec<String>,
    /// Which Nodes without a provider ID it serves. One without requirements stands for all that no other selector matches.
    pub node_selector: NodeSelector,
    /// The load balancer classes that it serves. Empty for a provider without load balancers.
    pub classes: Vec<String>,
    /// Whether it serves Services without a class. False for a provider without load balancers.
    pub is_default: bool,
    /// Whether it looks up instances. Only such a provider has a node controller, which reports Nodes that no provider serves.
    pub looks_up_instances: bool,
}

impl Claim {
    /// The claim of a provider that runs alone: it serves all Nodes of its schemes, all without a provider ID, and Services
    /// without a class.
    pub fn of_only_provider(name: impl Into<String>, schemes: Vec<String>) -> Self {
        Self {
            name: name.into(),
            created_at: Timestamp::UNIX_EPOCH,
            schemes,
            node_selector: NodeSelector::default(),
            classes: Vec::new(),
            is_default: true,
            looks_up_instances: true,
        }
    }

    /// Everything that both claims name.
    fn shared_with<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = Subject> + 'a {
        let name = (self.name == other.name).then_some(Subject::Name);
        let schemes = self.schemes.iter().filter(|scheme| other.schemes.contains(scheme));
        let is_rest = self.node_selector.is_empty() && other.node_selector.is_empty();
        let classes = self.classes.iter().filter(|class| other.classes.contains(class));
        let is_default = self.is_default && other.is_default;
        name.into_iter()
            .chain(schemes.map(|scheme| Subject::Scheme(scheme.clone())))
            .chain(is_rest.then_some(Subject::NodesWithoutId))
            .chain(classes.map(|class| Subject::Class(class.clone())))
            .chain(is_default.then_some(Subject::ServicesWithoutClass))
    }
}

/// What only one provider can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The name of a provider.
    Name,
    /// The provider IDs with this scheme.
    Scheme(String),
    /// The Nodes without a provider ID that no selector matches.
    NodesWithoutId,
    /// The Services of this load balancer class.
    Class(String),
    /// The Services without a load balancer class.
    ServicesWithoutClass,
}

/// A claim that is refused, because an older one overlaps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    /// The provider that is refused as a whole.
    pub refused: String,
    /// The older provider.
    pub keeper: String,
    /// What both claim.
    pub subject: Subject,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused, keeper, subject } = self;
        write!(f, "provider {refused} is refused, because the older provider {keeper} ")?;
        match subject {
            Subject::Name => write!(f, "has the same name: change metadata.name of one of them"),
            Subject::Scheme(scheme) => write!(
                f,
                "serves provider IDs with {scheme}:// too: delete one of them, or change spec.source of one to a component \
                 with another scheme"
            ),
            Subject::NodesWithoutId => {
                write!(f, "serves all nodes without a provider ID too: set spec.nodeSelector of one of them")
            }
            Subject::Class(class) => write!(
                f,
                "serves the load balancer class {class} too: remove it from spec.loadBalancerClasses of one of them"
            ),
            Subject::ServicesWithoutClass => write!(
                f,
                "serves Services without a loadBalancerClass too: set spec.default of one of them to false"
            ),
        }
    }
}

/// All that refuses providers, in the order of their age and then of their names. A provider that is refused claims nothing,
/// so it refuses no younger one.
pub fn overlaps(claims: &[Claim]) -> Vec<Overlap> {
    Claims::new(claims.to_vec()).1
}

/// What overlaps once a provider claims `next`, and doesn't among the present claims. It is about this provider, as the one that
/// is refused or the one that is kept: a new release must neither lose its own Nodes and Services nor take those of another.
pub fn new_overlaps(claims: &[Claim], next: &Claim) -> Vec<Overlap> {
    let others = claims.iter().filter(|claim| claim.name != next.name);
    let after: Vec<_> = others.chain([next]).cloned().collect();
    let before = overlaps(claims);
    let is_new = |overlap: &Overlap| {
        (overlap.refused == next.name || overlap.keeper == next.name) && !before.contains(overlap)
    };
    overlaps(&after).into_iter().filter(is_new).collect()
}

/// The claims of the providers that run, the oldest first. No two overlap. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claims(Arc<[Claim]>);

impl Claims {
    /// The claims that stand among these, and what refuses the others: see [`overlaps`].
    pub fn new(mut claims: Vec<Claim>) -> (Self, Vec<Overlap>) {
        claims.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
        let (mut standing, mut refused): (Vec<Claim>, Vec<Overlap>) = (Vec::new(), Vec::new());
        for claim in claims {
            let before = refused.len();
            for older in &standing {
                let overlap =
                    |subject| Overlap { refused: claim.name.clone(), keeper: older.name.clone(), subject };
                refused.extend(claim.shared_with(older).map(overlap));
            }
            if refused.len() == before {
                standing.push(claim);
            }
        }
        (Self(standing.into()), refused)
    }

    /// The claim of a provider that runs alone.
    pub fn of_only_provider(name: impl Into<String>, schemes: Vec<String>) -> Self {
        Self(Arc::new([Claim::of_only_provider(name, schemes)]))
    }

    /// Whether the provider of this name is among them.
    pub fn contains(&self, provider: &str) -> bool {
        self.iter().any(|claim| claim.name == provider)
    }

    /// The claims, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.0.iter()
    }

    /// Which provider a Node with these labels and this provider ID belongs to.
    pub fn owner_of_node(&self, labels: &Labels, provider_id: Option<&ProviderId>) -> NodeOwner {
        let has_scheme = |claim: &&Claim| {
            provider_id.is_some_and(|id| claim.schemes.iter().any(|scheme| scheme == id.scheme()))
        };
        let selects = |claim: &&Claim| {
            provider_id.is_none() && !claim.node_selector.is_empty() && claim.node_selector.matches(labels)
        };
        let mut contenders: Vec<&Claim> =
            self.iter().filter(|claim| has_scheme(claim) || selects(claim)).collect();
        if contenders.is_empty() && provider_id.is_none() {
            contenders.extend(self.iter().find(|claim| claim.node_selector.is_empty()));
        }
        if let [owner] = contenders[..] {
            return NodeOwner::Provider(owner.name.clone());
        }
        let reporter = self.iter().find(|claim| claim.looks_up_instances);
        NodeOwner::Unserved {
            contenders: contenders.iter().map(|claim| claim.name.clone()).collect(),
            reporter: reporter.map(|claim| claim.name.clone()),
        }
    }
}

/// Which provider a Node belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeOwner {
    /// The provider of this name serves the Node.
    Provider(String),
    /// No provider serves the Node.
    Unserved {
        /// The providers whose selectors match it: none, or at least two.
        contenders: Vec<String>,
        /// The provider whose node controller reports the Node, so that it is reported once: the oldest that has one.
        reporter: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Claim {
        Claim {
            node_selector: NodeSelector::of(&format!("cloud={name}")),
            is_default: false,
            ..Claim::of_only_provider(name, vec![name.to_owned()])
        }
    }

    fn younger(name: &str, seconds: i64) -> Claim {
        Claim { created_at: Timestamp::from_second(seconds).unwrap(), ..claim(name) }
    }

    fn all_nodes(claim: Claim) -> Claim {
        Claim { node_selector: NodeSelector::default(), ..claim }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_younger_claim_that_overlaps_an_older_one_is_refused_with_the_field_to_change() {
        type Edit = fn(&mut Claim);
        let rows: [(&str, Edit, Edit, &[&str]); 11] = [
            ("nothing in common", |_| {}, |_| {}, &[]),
            (
                "one scheme",
                |_| {},
                |b| b.schemes.push("a".to_owned()),
                &["serves provider IDs with a:// too: "],
            ),
            ("a scheme in other letters", |_| {}, |b| b.schemes.push("A".to_owned()), &[]),
            ("two defaults", |a| a.is_default = true, |b| b.is_default = true, &["set spec.default of one"]),
            ("one default", |a| a.is_default = true, |_| {}, &[]),
            (
                "one class",
                |a| a.classes = texts(&["x/y", "x/z"]),
                |b| b.classes = texts(&["x/z"]),
                &["class x/z too: remove it from spec.loadBalancerClasses"],
            ),
            ("other classes", |a| a.classes = texts(&["x/y"]), |b| b.classes = texts(&["x/z"]), &[]),
            ("a class twice in one claim", |_| {}, |b| b.classes = texts(&["x/z", "x/z"]), &[]),
            (
                "two without selector",
                |a| a.node_selector = NodeSelector::default(),
                |b| b.node_selector = NodeSelector::default(),
                &["set spec.nodeSelector of one"],
            ),
            ("one without selector", |a| a.node_selector = NodeSelector::default(), |_| {}, &[]),
            (
                "all at once",
                |a| *a = all_nodes(Claim { is_default: true, ..a.clone() }),
                |b| *b = all_nodes(Claim { is_default: true, schemes: texts(&["a"]), ..b.clone() }),
                &["a://", "spec.nodeSelector", "spec.default"],
            ),
        ];
        for (row, edit_a, edit_b, expected) in rows {
            let (mut a, mut b) = (claim("a"), younger("b", 1));
            edit_a(&mut a);
            edit_b(&mut b);
            for claims in [vec![a.clone(), b.clone()], vec![b, a]] {
                let sentences: Vec<_> = overlaps(&claims).iter().map(ToString::to_string).collect();
                assert_eq!(sentences.len(), expected.len(), "{row}: {sentences:?}");
                for (sentence, part) in sentences.iter().zip(expected) {
                    assert!(
                        sentence.starts_with("provider b is refused, because the older provider a "),
                        "{row}"
                    );
                    assert!(sentence.contains(part), "{row}: {sentence}");
                }
            }
        }
    }

    #[test]
    fn the_oldest_claim_stands_then_the_first_name_and_a_refused_one_refuses_none() {
        let default = |claim: Claim| Claim { is_default: true, ..claim };
        let class = |claim: Claim| Claim { classes: texts(&["x/y"]), ..claim };
        let named_a = Claim { schemes: texts(&["other"]), ..younger("a", 9) };
        for (claims, standing) in [
            (vec![default(younger("a", 2)), default(younger("b", 1))], vec!["b"]),
            (vec![default(claim("b")), default(claim("a"))], vec!["a"]),
            // b overlaps a, and c overlaps only b.
            (
                vec![default(claim("a")), class(default(younger("b", 1))), class(younger("c", 2))],
                vec!["a", "c"],
            ),
            (vec![claim("a"), named_a], vec!["a"]),
            (vec![], vec![]),
        ] {
            let (found, refused) = Claims::new(claims.clone());
            assert_eq!(
                found.iter().map(|claim| claim.name.as_str()).collect::<Vec<_>>(),
                standing,
                "{claims:?}"
            );
            assert_eq!(refused, overlaps(&claims));
            assert_eq!(
                overlaps(&found.iter().cloned().collect::<Vec<_>>()),
                [],
                "what stands overlaps nowhere"
            );
        }
    }

    #[test]
    fn a_next_release_overlaps_only_what_the_one_before_did_not() {
        type Edit = fn(&mut Claim);
        let others = [younger("a", 1), Claim { classes: texts(&["x/y"]), ..younger("c", 3) }];
        let rows: [(&str, Edit, Edit, &[&str]); 6] = [
            ("the same", |_| {}, |_| {}, &[]),
            ("an older one's scheme", |_| {}, |b| b.schemes.push("a".to_owned()), &["provider b is refused"]),
            (
                "a younger one's scheme",
                |_| {},
                |b| b.schemes.push("c".to_owned()),
                &["provider c is refused"],
            ),
            ("a younger one's class", |_| {}, |b| b.classes = texts(&["x/y"]), &["provider c is refused"]),
            ("what it had", |b| b.schemes.push("a".to_owned()), |b| b.schemes.push("a".to_owned()), &[]),
            (
                "more than it had",
                |b| b.schemes.push("a".to_owned()),
                |b| b.schemes.extend(texts(&["a", "c"])),
                &[],
            ),
        ];
        for (row, edit_present, edit_next, expected) in rows {
            let (mut present, mut next) = (younger("b", 2), younger("b", 2));
            edit_present(&mut present);
            edit_next(&mut next);
            let found = new_overlaps(&[&others[..], &[present]].concat(), &next);
            assert_eq!(found.len(), expected.len(), "{row}: {found:?}");
            for (overlap, start) in found.iter().zip(expected) {
                assert!(overlap.to_string().starts_with(start), "{row}: {overlap}");
            }
        }
    }

    #[test]
    fn a_node_belongs_to_the_provider_of_its_scheme_or_without_provider_id_to_that_of_its_labels() {
        let spot = Claim { node_selector: NodeSelector::of("spot"), ..younger("s", 1) };
        let with_rest = vec![all_nodes(claim("rest")), younger("a", 1), spot.clone()];
        let without_rest = vec![Claim { looks_up_instances: false, ..claim("z") }, younger("a", 1), spot];
        let unserved = |contenders: &[&str], reporter: &str| NodeOwner::Unserved {
            contenders: texts(contenders),
            reporter: (!reporter.is_empty()).then(|| reporter.to_owned()),
        };
        let of = |name: &str| NodeOwner::Provider(name.to_owned());
        let (a, both, other) =
            (&[("cloud", "a")][..], &[("cloud", "a"), ("spot", "")][..], &[("cloud", "x")][..]);
        for (row, claims, labels, id, expected) in [
            ("its scheme", &with_rest, &[][..], Some("a://1"), of("a")),
            ("its scheme, regardless of its labels", &with_rest, both, Some("rest://1"), of("rest")),
            ("an unknown scheme", &with_rest, a, Some("x://1"), unserved(&[], "rest")),
            ("a scheme in other letters", &with_rest, a, Some("A://1"), unserved(&[], "rest")),
            ("its labels", &with_rest, a, None, of("a")),
            ("the labels of two", &with_rest, both, None, unserved(&["a", "s"], "rest")),
            ("other labels", &with_rest, other, None, of("rest")),
            ("no labels", &with_rest, &[], None, of("rest")),
            ("no labels, and none takes the rest", &without_rest, &[], None, unserved(&[], "a")),
            (
                "the labels of two, and none takes the rest",
                &without_rest,
                both,
                None,
                unserved(&["a", "s"], "a"),
            ),
            ("no provider", &Vec::new(), a, Some("a://1"), unserved(&[], "")),
        ] {
            let (claims, refused) = Claims::new(claims.clone());
            assert_eq!(refused, [], "{row}");
            let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            let id = id.map(|id| ProviderId::parse(id).unwrap());
            assert_eq!(claims.owner_of_node(&labels, id.as_ref()), expected, "{row}");
        }
        let alone = Claims::of_only_provider("only", texts(&["a"]));
        assert_eq!(alone.owner_of_node(&Labels::default(), None), of("only"));
    }
}
