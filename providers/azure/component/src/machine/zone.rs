//! Regions and zones. Where a machine is in no zone, its fault domain takes the zone's place, as with cloud-provider-azure. Pure.

/// The region of a location, which some resources have as text for people.
pub(crate) fn region(location: &str) -> String {
    location.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase()
}

/// The zone of a machine. None if Azure says neither a zone nor a fault domain: a guess would move Pods to a wrong place.
pub(crate) fn zone(location: &str, zones: &[String], fault_domain: Option<i64>) -> Option<String> {
    match zones.first().filter(|zone| zone.parse::<u32>().is_ok()) {
        Some(zone) => Some(format!("{}-{zone}", region(location))),
        None => fault_domain.map(|domain| domain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 2.7 and D5: a fault domain that Azure doesn't tell is no domain 0.
    #[test]
    fn a_zone_is_the_clouds_or_a_fault_domain() {
        let rows = [
            ("eastus", vec!["1"], Some(2), Some("eastus-1")),
            ("EastUS", vec!["3", "1"], None, Some("eastus-3")),
            ("East US 2", vec!["1"], None, Some("eastus2-1")),
            ("eastus", vec![], Some(0), Some("0")),
            ("eastus", vec!["x"], Some(4), Some("4")),
            ("eastus", vec![], None, None),
        ];
        for (location, zones, domain, expected) in rows {
            let zones: Vec<_> = zones.into_iter().map(str::to_owned).collect();
            assert_eq!(
                zone(location, &zones, domain).as_deref(),
                expected,
                "{location} {zones:?} {domain:?}"
            );
        }
    }
}
