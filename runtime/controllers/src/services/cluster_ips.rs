//! The ClusterIPs of all Services, also of those that want no load balancer. No Node and no load balancer may have one.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::runtime::watcher;

use crate::informer::key;

/// The ClusterIPs by Service.
#[derive(Debug, Default)]
pub(super) struct ClusterIps {
    by_service: HashMap<String, Vec<IpAddr>>,
    by_ip: HashMap<IpAddr, BTreeSet<String>>,
    /// The Services of a list that isn't complete yet.
    listing: HashMap<String, Vec<IpAddr>>,
}

impl ClusterIps {
    /// Applies an event of the watch.
    pub(super) fn on_event(&mut self, event: &watcher::Event<Service>) {
        match event {
            watcher::Event::Init => self.listing.clear(),
            watcher::Event::InitApply(service) => {
                self.listing.insert(key(service), cluster_ips(service));
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                self.by_service.clear();
                self.by_ip.clear();
                for (name, ips) in listed {
                    self.set(name, ips);
                }
            }
            watcher::Event::Apply(service) => self.set(key(service), cluster_ips(service)),
            watcher::Event::Delete(service) => self.remove(&key(service)),
        }
    }

    /// A Service with this ClusterIP, as `namespace/name`.
    pub(super) fn service_with(&self, ip: IpAddr) -> Option<&str> {
        self.by_ip.get(&ip)?.first().map(String::as_str)
    }

    fn set(&mut self, name: String, ips: Vec<IpAddr>) {
        if self.by_service.get(&name) == Some(&ips) {
            return;
        }
        self.remove(&name);
        for ip in &ips {
            self.by_ip.entry(*ip).or_default().insert(name.clone());
        }
        self.by_service.insert(name, ips);
    }

    fn remove(&mut self, name: &str) {
        for ip in self.by_service.remove(name).into_iter().flatten() {
            if let Some(names) = self.by_ip.get_mut(&ip) {
                names.remove(name);
                if names.is_empty() {
                    self.by_ip.remove(&ip);
                }
            }
        }
    }
}

/// The ClusterIPs of a Service. A headless one has none.
pub(crate) fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let mut ips: Vec<IpAddr> = Vec::new();
    for text in spec.cluster_ip.iter().chain(spec.cluster_ips.iter().flatten()) {
        if let Ok(ip) = text.parse::<IpAddr>()
            && !ips.contains(&ip.to_canonical())
        {
            ips.push(ip.to_canonical());
        }
    }
    ips
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(name: &str, ips: &[&str]) -> Service {
        serde_json::from_value(json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"clusterIP": ips.first(), "clusterIPs": ips},
        }))
        .unwrap()
    }

    #[test]
    fn the_cluster_ips_follow_the_watch() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut known = ClusterIps::default();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(service("a", &["10.96.0.1", "fd96::1"])),
            watcher::Event::InitApply(service("headless", &["None"])),
        ] {
            known.on_event(&event);
        }
        assert_eq!(known.service_with(ip("10.96.0.1")), None, "the list isn't complete");
        known.on_event(&watcher::Event::InitDone);
        assert_eq!(known.service_with(ip("10.96.0.1")), Some("shop/a"));
        assert_eq!(known.service_with(ip("fd96::1")), Some("shop/a"));
        known.on_event(&watcher::Event::Apply(service("b", &["10.96.0.2"])));
        known.on_event(&watcher::Event::Apply(service("a", &["10.96.0.3"])));
        let with = |known: &ClusterIps, text| known.service_with(ip(text)).map(str::to_owned);
        assert_eq!(
            ["10.96.0.1", "10.96.0.2", "10.96.0.3"].map(|ip| with(&known, ip).is_some()),
            [false, true, true]
        );
        known.on_event(&watcher::Event::Delete(service("b", &["10.96.0.2"])));
        assert_eq!(with(&known, "10.96.0.2"), None);
        known.on_event(&watcher::Event::Init);
        known.on_event(&watcher::Event::InitDone);
        assert!(known.by_ip.is_empty() && known.by_service.is_empty(), "a new list without it");
    }
}
