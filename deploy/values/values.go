package values

// Values are all settings of the chart. No other key is allowed.
type Values struct {
	// Values that a parent chart shares with its subcharts. Tenon does not read them.
	Global map[string]any `json:"global" default:"{}"`
	// Where the images come from.
	Image Images `json:"image"`
	// CustomResourceDefinitions.
	CRDs CRDs `json:"crds"`
	// tenon-scheduler: kube-scheduler with Tenon's plugins.
	Scheduler Scheduler `json:"scheduler"`
	// tenon-manager: the webhooks, and the controllers of quotas, gangs and devices.
	Manager Manager `json:"manager"`
	// tenon-descheduler: moves pods where their room is already reserved.
	Descheduler Descheduler `json:"descheduler"`
	// tenon-agent, on every node.
	Agent Agent `json:"agent"`
	// The console for browsers of other machines. It has no rights: each of its users signs in with a bearer token, and
	// sees what the API server lets its bearer read.
	Console Console `json:"console"`
	// The reporter of NVIDIA's cards: it gives the agent of a node what the driver's nvidia-smi says of memory, links,
	// MIG devices and health. Its container is privileged, and has no rights in the API.
	NVIDIA NVIDIA `json:"nvidia"`
	// Roles for people, bound to no subject.
	Roles Switch `json:"roles"`
	// The priority classes koord-prod, koord-mid, koord-batch and koord-free.
	PriorityClasses Switch `json:"priorityClasses"`
	// Who reaches the pods of scheduler, manager and descheduler, and whom they reach.
	NetworkPolicy NetworkPolicy `json:"networkPolicy"`
	// Objects for the Prometheus operator and for Grafana.
	Monitoring Monitoring `json:"monitoring"`
}

// Images are settings of all images.
type Images struct {
	// Registry and path of the images; empty for none.
	Registry string `json:"registry" default:"localhost"`
	// Tag of the images without a digest; empty for the chart's appVersion.
	Tag string `json:"tag" default:"\"\"" pattern:"^[A-Za-z0-9_.-]*$"`
	// When a kubelet pulls the images.
	PullPolicy string `json:"pullPolicy" default:"IfNotPresent" enum:"IfNotPresent Always Never"`
	// Names of Secrets of the release's namespace with credentials for the registry.
	PullSecrets []string `json:"pullSecrets" default:"[]"`
}

// Image is one image.
type Image struct {
	// Name below the registry.
	Repository string `json:"repository" pattern:"^[a-z0-9._/-]+$"`
	// Digest, which replaces the tag.
	Digest string `json:"digest" default:"\"\"" pattern:"^(sha256:[0-9a-f]{64})?$"`
}

// CRDs are the settings of CustomResourceDefinitions.
type CRDs struct {
	// Install and upgrade them with the release.
	Enabled bool `json:"enabled" default:"true"`
	// Keep them, and with them all objects of their kinds, when the release is uninstalled.
	Keep bool `json:"keep" default:"true"`
	// Names of CustomResourceDefinitions that another installation owns, such as podgroups.scheduling.x-k8s.io.
	Skip []string `json:"skip" default:"[]"`
}

// Switch is something that is installed or not.
type Switch struct {
	// Install it.
	Enabled bool `json:"enabled" default:"true"`
}

// Pods are settings of pods.
type Pods struct {
	// Requests and limits of the container.
	Resources Resources `json:"resources"`
	// Labels of the nodes that they run on, beside kubernetes.io/os=linux.
	NodeSelector map[string]string `json:"nodeSelector" default:"{}"`
	// Affinity, as in a pod.
	Affinity map[string]any `json:"affinity" default:"{}"`
	// Annotations of the pods, such as those that exclude them from a service mesh.
	PodAnnotations map[string]string `json:"podAnnotations" default:"{}"`
	// Additional arguments of the program; docs/reference/flags.md lists them.
	ExtraArgs []string `json:"extraArgs" default:"[]"`
}

// Replicated are settings of a Deployment; one of its pods leads.
type Replicated struct {
	Switch `json:",inline"`
	// Number of pods; one leads.
	Replicas int `json:"replicas" default:"2" minimum:"1" maximum:"9"`
	// The image.
	Image Image `json:"image"`
	// PriorityClass of the pods.
	PriorityClassName string `json:"priorityClassName" default:"system-cluster-critical"`
	// Taints that they tolerate.
	Tolerations []map[string]any `json:"tolerations" default:"[]"`
	Pods        `json:",inline"`
}

// Resources are requests and limits of a container.
type Resources struct {
	// Requested amounts.
	Requests map[string]Quantity `json:"requests" default:"{}"`
	// Limits. A limit of memory in Mi or Gi also bounds the heap of the scheduler, at four fifths of it.
	Limits map[string]Quantity `json:"limits" default:"{}"`
}

// Quantity is an amount as Kubernetes writes it, a number or a string.
type Quantity any

// Scheduler is the settings of tenon-scheduler.
type Scheduler struct {
	Replicated `repository:"tenon-scheduler" requests:"{cpu: 200m, memory: 256Mi}" limits:"{memory: 2Gi}"`
	// Names that the scheduler serves (spec.schedulerName). Use default-scheduler only in a cluster without another
	// kube-scheduler. Ignored if config is set, whose profiles contain the names.
	Names []string `json:"names" default:"[tenon-scheduler]" minItems:"1" pattern:"^[a-z0-9.-]+$"`
	// Names of other schedulers whose allocations count, such as Koordinator's while a cluster moves over. The webhooks
	// check the pods of these and of this release's schedulers; labels and annotations of Tenon on other pods are
	// ignored. If you remove a name from names, add it here while its pods run.
	Trusted []string `json:"trusted" default:"[koord-scheduler]" pattern:"^[a-z0-9.-]+$"`
	// A complete KubeSchedulerConfiguration; empty for kube-scheduler's default profile with Tenon's plugins. The
	// manager uses its first ElasticQuotaArgs.
	Config map[string]any `json:"config" default:"{}"`
	// How much the heap may grow until the next garbage collection, in percent. A higher value costs memory and saves
	// CPU.
	GarbageCollection int `json:"garbageCollection" default:"200" minimum:"20" maximum:"1000"`
	// Record the scheduler's events and decisions for tenon replay: at most 256 MiB on an ephemeral volume of each pod.
	Journal bool `json:"journal" default:"false"`
}

// Manager is the settings of tenon-manager.
type Manager struct {
	Replicated `repository:"tenon-manager" requests:"{cpu: 100m, memory: 128Mi}" limits:"{memory: 1Gi}"`
	// The webhook configurations. Without them no manifest is refused, and no pod gets defaults.
	Webhooks Switch `json:"webhooks"`
	// Use the network of the nodes, with the ports 9443, 8443 and 8081, for an API server that cannot reach pods. Each
	// pod then needs a separate node.
	HostNetwork bool `json:"hostNetwork" default:"false"`
	// Add the annotation to pods with exclusive CPUs or devices that makes a runtime with NRI's default validator
	// refuse their containers while the agent is down.
	RequireNRIPlugin bool `json:"requireNRIPlugin" default:"true"`
	// Accept an ElasticQuota whose max has only some of the resources of its parent's.
	RelaxResourceKeys bool `json:"relaxResourceKeys" default:"false"`
	// Set the annotations by which the cluster autoscaler and Karpenter keep a node, on nodes with Reservations that
	// hold capacity.
	ProtectReservations bool `json:"protectReservations" default:"false"`
	// Create pods in the namespace tenon-scale-helper for which cluster autoscalers add nodes, for pods that fit nodes
	// by amounts alone.
	ScaleHelper bool `json:"scaleHelper" default:"false"`
	// Publish the amounts of devices that Tenon allocates in the capacity of their nodes.
	PublishDeviceResources bool `json:"publishDeviceResources" default:"true"`
	// Gangs of the pods that operators create.
	Workloads Workloads `json:"workloads"`
	// User names that may write the annotations of a scheduler, in addition to the account of this release's scheduler.
	Schedulers []string `json:"schedulers" default:"[system:serviceaccount:koordinator-system:koord-scheduler]"`
}

// Workloads is about pods of operators' objects, which start together.
type Workloads struct {
	// Whose pods: Declared is those of all namespaces, OptIn those of namespaces with the label tenon.sh/gangs=auto,
	// Off none.
	Grouping string `json:"grouping" default:"Declared" enum:"Declared OptIn Off"`
	// API groups of operators whose objects the manager may read; empty for those with a built-in rule. Pods of other
	// operators start one by one.
	Groups []string `json:"groups" default:"[]" pattern:"^[a-z0-9.-]+$"`
	// Rules for your own kinds: which of their pods start together. The manager may read all objects of their API
	// groups.
	Rules []map[string]any `json:"rules" default:"[]"`
}

// Descheduler is the settings of tenon-descheduler.
type Descheduler struct {
	Replicated `repository:"tenon-descheduler" requests:"{cpu: 50m, memory: 128Mi}" limits:"{memory: 1Gi}"`
	// A complete DeschedulerConfiguration or DeschedulerPolicy; empty to move pods only for PodMigrationJobs.
	// docs/reference/descheduler-config.yaml lists every field.
	Config map[string]any `json:"config" default:"{}"`
}

// Agent is the settings of tenon-agent.
type Agent struct {
	Switch `json:",inline"`
	// The image.
	Image Image `json:"image" repository:"tenon-agent"`
	// PriorityClass of the pods.
	PriorityClassName string `json:"priorityClassName" default:"system-node-critical"`
	// Taints that they tolerate.
	Tolerations []map[string]any `json:"tolerations" default:"[{operator: Exists}]"`
	Pods        `json:",inline" requests:"{cpu: 20m, memory: 48Mi}" limits:"{memory: 192Mi}"`
	// How many nodes are upgraded at once, as a number or percentage. While an agent is down, its node starts no pods
	// with exclusive CPUs.
	MaxUnavailable any `json:"maxUnavailable" default:"10%"`
	// Socket of the container runtime's NRI; empty if tenon-runtime-proxy is used.
	NRISocket string `json:"nriSocket" default:"/var/run/nri/nri.sock" pattern:"^(/.+/[^/]+)?$"`
	// Folder of the kubelet on the nodes.
	KubeletDir string `json:"kubeletDir" default:"/var/lib/kubelet" pattern:"^/.*[^/]$"`
	// Who allocates devices: Follow (the kubelet), Own (Tenon) or Moving; empty to use the mode in a node's Device
	// object.
	DeviceMode string `json:"deviceMode" default:"\"\"" pattern:"^(Follow|Own|Moving)?$"`
	// NAMESPACE or NAMESPACE/SELECTOR of pods that may see devices without an allocation, such as metrics exporters.
	DeviceExempt []string `json:"deviceExempt" default:"[]"`
	// Start LSE pods even if containers may start without the agent: on old runtimes, or without NRI's validator.
	AllowDegradedEnforcement bool `json:"allowDegradedEnforcement" default:"false"`
	// Also publish the Numatopology of each node, for Volcano.
	PublishNumatopology bool `json:"publishNumatopology" default:"false"`
	// Move interrupts off the CPUs of LSE pods, and of LSR pods that ask for it, and limit how deep CPUs sleep where
	// pods ask for it. The agent can then change /proc/irq, /sys/devices/system/cpu and the bans of irqbalance.
	IsolateExclusiveCPUs bool `json:"isolateExclusiveCPUs" default:"false"`
	// Node port for the agents' metrics if monitoring is enabled, over TLS and with the API server's authorization; 0
	// for none.
	MetricsPort int `json:"metricsPort" default:"10272" minimum:"0" maximum:"65535"`
}

// NVIDIA is the settings of the reporter of NVIDIA's cards.
type NVIDIA struct {
	// Install it.
	Enabled bool `json:"enabled" default:"false"`
	// Labels of the nodes with such cards; empty for nodes on which Node Feature Discovery or GPU Feature Discovery has
	// found one.
	NodeSelector map[string]string `json:"nodeSelector" default:"{}"`
	// Taints that the pods tolerate.
	Tolerations []map[string]any `json:"tolerations" default:"[{operator: Exists}]"`
	// Requests and limits of the container, in which nvidia-smi runs.
	Resources Resources `json:"resources" requests:"{cpu: 20m, memory: 32Mi}" limits:"{memory: 256Mi}"`
	// Time between two runs of nvidia-smi.
	Every string `json:"every" default:"15s" pattern:"^[0-9]+(s|m)$"`
}

// Console is the settings of the console in the cluster.
type Console struct {
	// Install it.
	Enabled bool `json:"enabled" default:"false"`
	// The image.
	Image Image `json:"image" repository:"kubectl-tenon"`
	// Names by which browsers reach the console, in addition to its Service and kubectl port-forward.
	Hosts []string `json:"hosts" default:"[]"`
	// Secret with the certificate for those names (tls.crt, tls.key); empty for a certificate of the manager, which
	// browsers do not trust, and which names only the Service.
	TLSSecret string `json:"tlsSecret" default:"\"\"" pattern:"^[a-z0-9.-]*$"`
	// PriorityClass of the pod.
	PriorityClassName string `json:"priorityClassName" default:"\"\""`
	// Taints that it tolerates.
	Tolerations []map[string]any `json:"tolerations" default:"[]"`
	Pods        `json:",inline" requests:"{cpu: 20m, memory: 64Mi}" limits:"{memory: 1Gi}"`
}

// NetworkPolicy is the settings of network policies.
type NetworkPolicy struct {
	Switch `json:",inline"`
	// Namespace whose pods may read metrics.
	ScrapeNamespace string `json:"scrapeNamespace" default:"monitoring" pattern:"^[a-z0-9-]+$"`
	// Ports of the API server: that of its Service, and that of its endpoints.
	APIServerPorts []int `json:"apiServerPorts" default:"[443, 6443]" minItems:"1"`
}

// Monitoring is the settings of objects for monitoring.
type Monitoring struct {
	// ServiceMonitors and a PrometheusRule, and dashboards in ConfigMaps with the label grafana_dashboard.
	Enabled bool `json:"enabled" default:"false"`
	// Labels by which the Prometheus operator selects ServiceMonitors and PrometheusRules.
	Labels map[string]string `json:"labels" default:"{}"`
	// Time between two scrapes.
	Interval string `json:"interval" default:"30s" pattern:"^[0-9]+(ms|s|m)$"`
}
