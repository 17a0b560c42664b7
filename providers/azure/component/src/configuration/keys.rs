//! The keys of azure.json, as cloud-provider-azure reads it today, and what each of them does here. The schema of the
//! configuration, its notices and the table in the README come from this table.

pub(crate) use super::rate_limits::RATE_LIMITS;

/// The type of a key's value in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Flag,
    Number,
    Object,
    List,
}

/// What a key does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The provider reads it.
    Read,
    /// It describes the credential, which the CloudProvider document has: the provider tells the host what it says.
    Credential,
    /// It is a secret, which no configuration may hold. The text says where it belongs.
    Secret(&'static str),
    /// It is about load balancers, which this version doesn't manage yet.
    Later,
    /// It has no effect. The text says why, after "because".
    Nothing(&'static str),
}

/// A key of azure.json.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) effect: Effect,
    /// What it means, for the README and the schema.
    pub(crate) meaning: &'static str,
}

const fn key(name: &'static str, kind: Kind, effect: Effect, meaning: &'static str) -> Key {
    Key { name, kind, effect, meaning }
}

use Effect::{Credential, Later, Nothing, Read, Secret};
use Kind::{Flag, List, Number, Object, Text};

/// Why the keys about caches have no effect.
const CACHE: Effect = Nothing("Pileus caches by itself, and each call says how old an answer may be");
const BACKOFF: Effect = Nothing("Pileus retries by itself");
const LIMIT: Effect = Nothing("Azure's published limits are declared, and spec.limits tightens them");
const HOST: Effect = Nothing("Pileus follows its document by itself");

/// All keys.
pub(crate) const KEYS: &[Key] = &[
    // The cloud and its identity.
    key(
        "cloud",
        Text,
        Read,
        "the cloud: AzurePublicCloud (the default), AzureChinaCloud, AzureUSGovernmentCloud or AzureStackCloud",
    ),
    key("tenantId", Text, Credential, "the Entra tenant of the identity; adfs on Azure Stack with AD FS"),
    key("subscriptionId", Text, Read, "the subscription of the machines"),
    key(
        "aadClientId",
        Text,
        Credential,
        "the client ID of the service principal or of the workload identity",
    ),
    key(
        "aadClientSecret",
        Text,
        Secret("a Kubernetes Secret that spec.credentials[].clientSecret.secret names"),
        "the secret of the service principal",
    ),
    key(
        "aadClientCertPath",
        Text,
        Credential,
        "the certificate of the service principal; spec.credentials[].clientCertificate names it, with its key, as PEM",
    ),
    key(
        "aadClientCertPassword",
        Text,
        Secret(
            "nowhere: convert the PFX file to PEM, and put the key into a Kubernetes Secret that spec.credentials[].clientCertificate.key names",
        ),
        "the password of the certificate",
    ),
    key("useManagedIdentityExtension", Flag, Credential, "the identity is a managed identity"),
    key(
        "userAssignedIdentityID",
        Text,
        Credential,
        "the client ID or the resource ID of a user-assigned identity",
    ),
    key("useFederatedWorkloadIdentityExtension", Flag, Credential, "the identity is a workload identity"),
    key(
        "aadFederatedTokenFile",
        Text,
        Credential,
        "the service account's token; spec.credentials[].workloadIdentity.token names it",
    ),
    key(
        "aadMSIDataPlaneIdentityPath",
        Text,
        Nothing("only AKS itself has such files"),
        "a credential file of AKS",
    ),
    key(
        "auxiliaryTokenProvider",
        Object,
        Nothing("spec.credentials[].auxiliary names a credential of the second tenant instead"),
        "a Key Vault secret with a token of the second tenant",
    ),
    key(
        "networkResourceTenantID",
        Text,
        Credential,
        "the tenant of the network resources, if it is another one",
    ),
    key(
        "networkResourceSubscriptionID",
        Text,
        Read,
        "the subscription of route tables, if it is another one",
    ),
    key("identitySystem", Text, Credential, "azure_ad (the default) or adfs"),
    key("userAgent", Text, Nothing("Pileus sends its own"), "the User-Agent header"),
    key(
        "resourceManagerEndpoint",
        Text,
        Read,
        "the URL of the resource manager, if it isn't that of the cloud",
    ),
    key(
        "activeDirectoryEndpoint",
        Text,
        Credential,
        "the URL of the token service, if it isn't that of the cloud",
    ),
    key("tokenAudience", Text, Credential, "the audience of tokens, if it isn't that of the cloud"),
    key(
        "disableAzureStackCloud",
        Flag,
        Read,
        "use the API versions of the public cloud although `cloud` is AzureStackCloud",
    ),
    key("enableMinimumRetryAfter", Flag, BACKOFF, "ignore a short Retry-After"),
    key(
        "useInstanceMetadata",
        Flag,
        Read,
        "describe the local machine by its metadata service: for node managers. It asks for access to that service",
    ),
    key(
        "metadataEndpoint",
        Text,
        Read,
        "the URL of the metadata service; http://169.254.169.254 by default. Not a key of cloud-provider-azure",
    ),
    key("cloudConfigType", Text, HOST, "where the configuration comes from"),
    key("disableCloudProvider", Flag, HOST, "stop the controllers"),
    // Placement and names.
    key("resourceGroup", Text, Read, "the resource group of the cluster"),
    key("location", Text, Read, "the region, in which a missing route table is created"),
    key("extendedLocationName", Text, Later, "the edge zone"),
    key("extendedLocationType", Text, Later, "the type of the edge zone"),
    key("vnetName", Text, Later, "the virtual network"),
    key("vnetResourceGroup", Text, Later, "its resource group"),
    key("subnetName", Text, Later, "the subnet of the Nodes"),
    key("securityGroupName", Text, Later, "the security group"),
    key("securityGroupResourceGroup", Text, Later, "its resource group"),
    key("routeTableName", Text, Read, "the route table; needed for routes"),
    key("routeTableResourceGroup", Text, Read, "its resource group, if it isn't that of the cluster"),
    key(
        "maximumRouteCount",
        Number,
        Read,
        "how many routes the table can have; 400 by default, as Azure allows. Not a key of cloud-provider-azure",
    ),
    key("privateLinkServiceResourceGroup", Text, Later, "the resource group of private link services"),
    key("loadBalancerName", Text, Later, "the name of the load balancer"),
    key("loadBalancerResourceGroup", Text, Later, "its resource group"),
    key("primaryAvailabilitySetName", Text, Later, "the availability set of the primary load balancer"),
    key("primaryScaleSetName", Text, Later, "the scale set of the primary load balancer"),
    key(
        "vmType",
        Text,
        Read,
        "the kind of most machines: vmss (the default), vmssflex or standard. All kinds are found with vmss; standard saves the list of scale sets",
    ),
    key(
        "disableAvailabilitySetNodes",
        Flag,
        Nothing("one list finds all machines outside of uniform scale sets"),
        "no Node is in an availability set",
    ),
    key(
        "enableVmssFlexNodes",
        Flag,
        Nothing("machines of flexible scale sets are always found"),
        "some Nodes are in flexible scale sets",
    ),
    key("tags", Text, Read, "tags of what is created, as in `a=b,c=d`"),
    key("tagsMap", Object, Read, "the same as an object; it wins"),
    key(
        "systemTags",
        Text,
        Read,
        "prefixes of tags, separated by commas, that stay. With it, tags that are neither wanted nor such are removed",
    ),
    key(
        "nodeInstanceNotFoundGracePeriodInSeconds",
        Number,
        Read,
        "a Node younger than this counts as pending although its machine isn't found; 0 by default",
    ),
    // Load balancers and routes.
    key("loadBalancerSku", Text, Later, "the SKU of load balancers"),
    key("excludeMasterFromStandardLB", Flag, Later, "leave control-plane Nodes out"),
    key("disableOutboundSNAT", Flag, Later, "no outbound SNAT by rules"),
    key("maximumLoadBalancerRuleCount", Number, Later, "how many rules a basic load balancer has"),
    key("preConfiguredBackendPoolLoadBalancerTypes", Text, Later, "pools that aren't touched"),
    key("loadBalancerBackendPoolConfigurationType", Text, Later, "how Nodes are members of pools"),
    key("enableMigrateToIPBasedBackendPoolAPI", Flag, Later, "how pools are migrated"),
    key("putVMSSVMBatchSize", Number, Later, "parallel writes of machines"),
    key("enableIPTagMutationForExistingPublicIP", Flag, Later, "change IP tags in place"),
    key("multipleStandardLoadBalancerConfigurations", List, Later, "several load balancers"),
    key("loadBalancerBackendPoolUpdateIntervalInSeconds", Number, Later, "the period of pool updates"),
    key("clusterServiceLoadBalancerHealthProbeMode", Text, Later, "the health probe of Services"),
    key("clusterServiceSharedLoadBalancerHealthProbePort", Number, Later, "the port of the shared probe"),
    key("clusterServiceSharedLoadBalancerHealthProbePath", Text, Later, "the path of the shared probe"),
    key("serviceGatewayEnabled", Flag, Later, "the service gateway"),
    key(
        "routeUpdateIntervalInSeconds",
        Number,
        Nothing("routes that are due together are one write, at once"),
        "the period of route writes",
    ),
    key(
        "routeUpdateWaitingInSeconds",
        Number,
        Nothing("Pileus polls the operation instead of sleeping"),
        "the sleep after a route write",
    ),
    // Caches, retries, limits.
    key("disableAPICallCache", Flag, CACHE, "no caches"),
    key("vmCacheTTLInSeconds", Number, CACHE, "the cache of machines"),
    key("availabilitySetsCacheTTLInSeconds", Number, CACHE, "the cache of availability sets"),
    key("vmssCacheTTLInSeconds", Number, CACHE, "the cache of scale sets"),
    key("vmssVirtualMachinesCacheTTLInSeconds", Number, CACHE, "the cache of their machines"),
    key(
        "listVmssVirtualMachinesWithoutInstanceView",
        Flag,
        Read,
        "list the machines of scale sets without their power state, which is then unknown until a machine is read by itself",
    ),
    key("nonVmssUniformNodesCacheTTLInSeconds", Number, CACHE, "the cache of other machines"),
    key("vmssFlexCacheTTLInSeconds", Number, CACHE, "the cache of flexible scale sets"),
    key("vmssFlexVMCacheTTLInSeconds", Number, CACHE, "the cache of their machines"),
    key("loadBalancerCacheTTLInSeconds", Number, CACHE, "the cache of load balancers"),
    key("nsgCacheTTLInSeconds", Number, CACHE, "the cache of security groups"),
    key("routeTableCacheTTLInSeconds", Number, CACHE, "the cache of route tables"),
    key("publicIPCacheTTLInSeconds", Number, CACHE, "the cache of public IP addresses"),
    key("plsCacheTTLInSeconds", Number, CACHE, "the cache of private link services"),
    key("cloudProviderBackoff", Flag, BACKOFF, "retry with backoff"),
    key("cloudProviderBackoffRetries", Number, BACKOFF, "the number of retries"),
    key("cloudProviderBackoffDuration", Number, BACKOFF, "the first delay"),
    key("cloudProviderBackoffExponent", Number, BACKOFF, "its growth"),
    key("cloudProviderBackoffJitter", Number, BACKOFF, "its jitter"),
    key("cloudProviderRateLimit", Flag, LIMIT, "limit requests"),
    key("cloudProviderRateLimitQPS", Number, LIMIT, "reads a second"),
    key("cloudProviderRateLimitBucket", Number, LIMIT, "reads at once"),
    key("cloudProviderRateLimitQPSWrite", Number, LIMIT, "writes a second"),
    key("cloudProviderRateLimitBucketWrite", Number, LIMIT, "writes at once"),
];

/// The key of this name, without regard to case.
pub(crate) fn find(name: &str) -> Option<Key> {
    let known = KEYS.iter().find(|key| key.name.eq_ignore_ascii_case(name)).copied();
    known.or_else(|| {
        let limit = RATE_LIMITS.iter().find(|limit| limit.eq_ignore_ascii_case(name))?;
        Some(key(limit, Object, LIMIT, "the limit of one kind of request"))
    })
}
