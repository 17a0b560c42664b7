//! The flag that chooses controllers, with upstream's names and rules.

use std::str::FromStr;

use clap::Args;

/// Which controllers run.
#[derive(Debug, Clone, Args)]
pub struct ControllerSelection {
    /// Run these controllers: `*` is all, a name adds one, and a name after a dash leaves one out, as in *,-cloud-node. The
    /// names are cloud-node, cloud-node-lifecycle, service and route, and upstream's longer ones. Where all names have a
    /// dash, all others run
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true
    )]
    pub controllers: Vec<Entry>,
}

/// A controller, by its name in upstream's flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerName {
    /// `cloud-node-controller`.
    CloudNode,
    /// `cloud-node-lifecycle-controller`.
    CloudNodeLifecycle,
    /// `service-lb-controller`.
    Service,
    /// `node-route-controller`.
    Route,
    /// `node-ipam-controller`, which a cloud-controller-manager may have and Pileus hasn't.
    NodeIpam,
}

/// One item of the flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// `*`.
    All,
    /// A name.
    With(ControllerName),
    /// A name after a dash.
    Without(ControllerName),
}

/// Upstream's names and aliases.
const NAMES: [(&str, ControllerName); 11] = [
    ("cloud-node", ControllerName::CloudNode),
    ("cloud-node-controller", ControllerName::CloudNode),
    ("cloud-node-lifecycle", ControllerName::CloudNodeLifecycle),
    ("cloud-node-lifecycle-controller", ControllerName::CloudNodeLifecycle),
    ("service", ControllerName::Service),
    ("service-lb", ControllerName::Service),
    ("service-lb-controller", ControllerName::Service),
    ("route", ControllerName::Route),
    ("node-route-controller", ControllerName::Route),
    ("nodeipam", ControllerName::NodeIpam),
    ("node-ipam-controller", ControllerName::NodeIpam),
];

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "*" {
            return Ok(Self::All);
        }
        let (is_left_out, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
        match (NAMES.iter().find(|(known, _)| *known == name), is_left_out) {
            (Some((_, name)), true) => Ok(Self::Without(*name)),
            (Some((_, ControllerName::NodeIpam)), false) => {
                Err("Pileus has no such controller; kube-controller-manager assigns Pod CIDRs to Nodes"
                    .to_owned())
            }
            (Some((_, name)), false) => Ok(Self::With(*name)),
            (None, _) => Err(format!(
                "unknown controller {name:?}; expected *, cloud-node, cloud-node-lifecycle, service or route, or one of these \
                 after a dash"
            )),
        }
    }
}

impl ControllerSelection {
    /// Whether a controller runs. As upstream has it, the first item that names the controller decides, and without one `*` does;
    /// there, a list without `*` and without any name leaves no controller.
    pub(crate) fn runs(&self, controller: ControllerName) -> bool {
        let named = self.controllers.iter().find_map(|entry| match entry {
            Entry::With(name) if *name == controller => Some(true),
            Entry::Without(name) if *name == controller => Some(false),
            _ => None,
        });
        let is_left_out = |entry: &Entry| matches!(entry, Entry::Without(_));
        let others = || self.controllers.contains(&Entry::All) || self.controllers.iter().all(is_left_out);
        named.unwrap_or_else(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLERS: [(&str, ControllerName); 4] = [
        ("n", ControllerName::CloudNode),
        ("l", ControllerName::CloudNodeLifecycle),
        ("s", ControllerName::Service),
        ("r", ControllerName::Route),
    ];

    #[test]
    fn controllers_are_chosen_by_each_of_upstreams_spellings() {
        for (text, expected) in [
            ("*", "nlsr"),
            ("*,-cloud-node", "lsr"),
            ("*,-cloud-node-controller", "lsr"),
            ("-cloud-node", "lsr"),
            ("-cloud-node,*", "lsr"),
            ("-cloud-node-controller, -route", "ls"),
            ("*,cloud-node,-cloud-node", "nlsr"),
            ("service-lb-controller,node-route-controller", "sr"),
            ("service,-cloud-node", "s"),
            ("*,-cloud-node-lifecycle-controller,-nodeipam", "nsr"),
        ] {
            let controllers = text.split(',').map(|entry| entry.parse().unwrap()).collect();
            let selection = ControllerSelection { controllers };
            let runs: String = CONTROLLERS
                .iter()
                .filter(|(_, name)| selection.runs(*name))
                .map(|(letter, _)| *letter)
                .collect();
            assert_eq!(runs, expected, "{text}");
        }
        for (text, expected) in [
            ("cloudnode", "unknown controller \"cloudnode\""),
            ("-", "unknown controller \"\""),
            ("", "unknown controller"),
            ("node-ipam-controller", "kube-controller-manager assigns"),
        ] {
            assert!(text.parse::<Entry>().unwrap_err().contains(expected), "{text}");
        }
    }
}
