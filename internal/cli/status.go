package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/core/health"
	"github.com/tenon-project/tenon/internal/help"
	"github.com/tenon-project/tenon/internal/kube/convert"
	"github.com/tenon-project/tenon/internal/view"
)

// installedIn is the namespace of the installation.
func installedIn() string { return cmp.Or(os.Getenv("TENON_NAMESPACE"), agentNamespace) }

const (
	componentLabel = "app.kubernetes.io/name"
	// What the manager keeps in the namespace of the installation.
	authorityConfigMap = "tenon-ca"
	authorityKey       = "ca.crt"
	certificateSecret  = "tenon-certificates"
)

func newStatus(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	var format string
	var patience time.Duration
	c := help.Command(texts, "status", &cobra.Command{
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, _ []string) error {
			if patience < 0 {
				return usagef("--wait %v is not allowed: use 0 or more", patience)
			}
			ctx, cancel := context.WithTimeout(c.Context(), patience)
			defer cancel()
			status, err := awaitStatus(ctx, func() (view.Status, error) { return askStatus(c.Context(), flags) })
			if err != nil {
				return err
			}
			err = printChecks(streams.Out, format, &status)
			if err == nil && patience > 0 && !status.IsComplete() {
				return errUnhealthy
			}
			return err
		},
	})
	outputFlag(c, &format)
	c.Flags().DurationVar(&patience, "wait", 0, "time to wait until no check fails and all replicas are ready")
	return c
}

// awaitStatus reads until all is well or ctx has ended, and once in any case.
func awaitStatus(ctx context.Context, read func() (view.Status, error)) (status view.Status, err error) {
	_ = wait.PollUntilContextCancel(ctx, watchInterval, true, func(context.Context) (bool, error) {
		status, err = read()
		return err == nil && status.IsComplete(), nil
	})
	return status, err
}

// askStatus is readStatus, with a pod that the webhooks are asked about in a namespace of the user's.
func askStatus(ctx context.Context, flags *genericclioptions.ConfigFlags) (none view.Status, err error) {
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return none, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return readStatus(ctx, flags, namespace)
}

// readStatus checks the installation. The webhooks are asked about a pod of a namespace; "" asks them nothing.
func readStatus(ctx context.Context, flags *genericclioptions.ConfigFlags, namespace string,
) (none view.Status, err error) {
	c, err := connect(flags)
	if err != nil {
		return none, err
	}
	local, err := addressesInKubeconfig(flags)
	if err != nil {
		return none, err
	}
	r := newStatusReader(c)
	r.in.Subject, r.in.Local, r.in.Client = "Tenon in namespace "+installedIn(), len(local) > 0, builtFrom().Tenon
	if r.in.Local {
		r.in.Subject = "Tenon of tenon up"
	}
	if err := r.read(ctx, namespace); err != nil {
		return none, err
	}
	scheduler, err := findDiagnostics(flags, "")
	if err == nil {
		err = scheduler.get(ctx, &r.in.Endpoints, "/apis/v1/__services__", "")
	}
	if err != nil {
		r.in.Diagnostics = err.Error()
	}
	return view.StatusOf(&r.in), ctx.Err()
}

// statusReader fills an Installation.
type statusReader struct {
	cluster
	in     view.Installation
	agents []string // names of the nodes with a ready agent
	failed error    // ends the answer
	// schedulers is the expression that names the schedulers whose pods the webhooks are asked about; "" for none.
	schedulers string
}

func newStatusReader(c cluster) *statusReader {
	return &statusReader{cluster: c, in: view.Installation{
		Now: time.Now(), DurationText: durationText, Unread: map[string]string{},
	}}
}

// durationText writes a duration as age does, above two days in whole days: "10y" for a certificate of ten years that
// was created a minute ago.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d > 2*day {
		d = d.Round(day)
	}
	return age(d)
}

// read reads everything but the diagnostics; a pod is tried in a namespace unless it is "".
func (r *statusReader) read(ctx context.Context, namespace string) error {
	if !r.in.Local {
		r.components(ctx, installedIn())
	}
	r.kubernetes()
	r.nodes(ctx)
	r.webhooks(ctx)
	var err error
	r.in.Strategy, err = r.strategy(ctx, nil)
	r.noted("colocation", "get on configmaps of namespace "+installedIn(), err)
	if !r.in.Local {
		r.authorities(ctx, installedIn())
	}
	r.in.Tried = namespace != ""
	if r.failed == nil && r.in.Tried {
		r.askWebhooks(ctx, namespace)
	}
	return r.failed
}

// newer is a resource that Tenon uses where the API server has one of its versions, the preferred one first. Kubernetes
// has it since a release, or behind a feature gate.
type newer struct {
	at []schema.GroupVersionResource
	// gate is the feature gate without which the API server does not serve a kind of native gangs; "" for other kinds.
	gate string
}

func newerKinds() []newer {
	gangs := v1alpha1.GangKinds()
	return []newer{
		{v1alpha1.PodGroupResources(v1alpha1.NativeGroupName), "GenericWorkload"},
		{gangs[len(gangs)-1].At, v1alpha1.CompositeKind},
		{at: []schema.GroupVersionResource{{Group: "resource.k8s.io", Version: "v1", Resource: "resourceclaims"}}},
		{at: []schema.GroupVersionResource{
			{Group: "lifecycle.k8s.io", Version: "v1alpha1", Resource: "evictionrequests"},
		}},
	}
}

// kubernetes reads the version of the API server, what it lacks, and by which APIs it serves native gangs.
func (r *statusReader) kubernetes() {
	const check = "kubernetes"
	version, err := r.core.Discovery().ServerVersion()
	if !r.noted(check, "get on /version", err) {
		return
	}
	r.in.Kubernetes = version.GitVersion
	for _, kind := range newerKinds() {
		at := slices.IndexFunc(kind.at, func(resource schema.GroupVersionResource) bool {
			group := resource.GroupVersion().String()
			all, err := r.core.Discovery().ServerResourcesForGroupVersion(group)
			return r.noted(check, "get on /apis", err) && slices.ContainsFunc(all.APIResources,
				func(a metav1.APIResource) bool { return a.Name == resource.Resource })
		})
		switch {
		case r.in.Unread[check] != "":
		case at < 0:
			r.in.Lacking = append(r.in.Lacking, kind.at[0].GroupResource().String())
		case kind.gate != "":
			r.in.NativeGangs = append(r.in.NativeGangs, fmt.Sprintf("%s of %s (feature gate %s is on)",
				kind.at[at].Resource, kind.at[at].GroupVersion(), kind.gate))
		}
	}
}

// noted reports whether something was read. A missing right is noted, what does not exist is empty, and any other error
// ends the answer.
func (r *statusReader) noted(what, right string, err error) bool {
	if apierrors.IsForbidden(err) {
		r.in.Unread[what] = right + " is missing"
	} else if err != nil && !apierrors.IsNotFound(err) && r.failed == nil {
		r.failed = fmt.Errorf("%s: %w", right, err)
	}
	return err == nil
}

// listed lists objects; where that fails, there are none.
func listed[L any](ctx context.Context, r *statusReader, what, resource string, lister interface {
	List(context.Context, metav1.ListOptions) (*L, error)
}, options metav1.ListOptions,
) (list L) {
	if all, err := lister.List(ctx, options); r.noted(what, "list on "+resource, err) {
		list = *all
	}
	return list
}

// ofComponents selects what is labelled as a component.
func ofComponents() metav1.ListOptions {
	names := []string{view.SchedulerName, view.ManagerName, view.DeschedulerName, view.AgentName}
	return metav1.ListOptions{LabelSelector: componentLabel + " in (" + strings.Join(names, ",") + ")"}
}

// components reads them with their leaders and versions, and where agents are ready.
func (r *statusReader) components(ctx context.Context, namespace string) {
	at, found := " of namespace "+namespace, map[string]*view.Component{}
	apps, those := r.core.AppsV1(), ofComponents()
	for _, d := range listed(ctx, r, "deployments", "deployments"+at, apps.Deployments(namespace), those).Items {
		name := d.Labels[componentLabel]
		c := &view.Component{Desired: int(ptr.Deref(d.Spec.Replicas, 1)), Ready: int(d.Status.ReadyReplicas)}
		for _, failed := range d.Status.Conditions {
			if failed.Type == appsv1.DeploymentReplicaFailure && failed.Status == corev1.ConditionTrue {
				c.Stuck = failed.Reason + ": " + failed.Message
			}
		}
		if lease, err := r.lease(ctx, name); err != nil {
			r.in.Unread[name+"-leader"] = err.Error()
		} else {
			seconds := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))
			ends := ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Add(seconds * time.Second)
			c.Leader, c.LeaseEnds = holderOf(lease), &ends
			if at := lease.Spec.AcquireTime; at != nil {
				c.LeaderSince = &at.Time
			}
		}
		found[name] = c
	}
	for _, d := range listed(ctx, r, "daemonsets", "daemonsets"+at, apps.DaemonSets(namespace), those).Items {
		found[d.Labels[componentLabel]] = &view.Component{
			Desired: int(d.Status.DesiredNumberScheduled), Ready: int(d.Status.NumberReady),
		}
	}
	pods := listed(ctx, r, "pods", "pods"+at, r.core.CoreV1().Pods(namespace), those).Items
	for _, c := range found {
		c.LeaderGone = r.in.Unread["pods"] == "" && c.Leader != "" // until its pod is found
	}
	for _, p := range pods {
		name := p.Labels[componentLabel]
		if c := found[name]; c != nil {
			version := versionOf(&p)
			if c.Pods == nil {
				c.Pods = map[string]int{}
			}
			c.Pods[version]++
			if c.Stuck = cmp.Or(c.Stuck, stuck(&p)); c.Leader == p.Name {
				c.LeaderGone, c.LeaderVersion = false, version
			}
		}
		if name == view.AgentName && isReady(&p) {
			r.agents = append(r.agents, p.Spec.NodeName)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		c := found[name]
		c.Name, c.Versions = name, slices.AppendSeq([]string{}, maps.Keys(c.Pods))
		slices.Sort(c.Versions)
		r.in.Components = append(r.in.Components, *c)
	}
}

// stuck returns why a pod does not get ready, "" where it does not say: no node takes it, or a container waits for more
// than its start, such as for an image.
func stuck(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason + ", image " + c.Image
		}
	}
	return ""
}

// versionOf returns the version that a pod is labelled with, else the tag of its image.
func versionOf(p *corev1.Pod) string {
	image := p.Spec.Containers[0].Image
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	_, tag, _ := strings.Cut(name, ":")
	return cmp.Or(p.Labels["app.kubernetes.io/version"], tag, "unknown")
}

func (r *statusReader) nodes(ctx context.Context) {
	written, all := map[string]map[string]time.Time{}, metav1.ListOptions{} // by resource and node
	topology := v1alpha2.Resource()
	for _, resource := range []schema.GroupVersionResource{
		topology, topology.GroupResource().WithVersion("v1alpha1"), devicev1alpha1.Resource(),
	} {
		if len(written[resource.Resource]) > 0 {
			continue // the older version is for clusters whose CRD has no other
		}
		written[resource.Resource] = map[string]time.Time{}
		objects := listed(ctx, r, resource.Resource, resource.GroupResource().String(),
			r.dynamic.Resource(resource), all)
		for i := range objects.Items {
			written[resource.Resource][objects.Items[i].GetName()] = lastWrite(&objects.Items[i])
		}
	}
	metrics, err := r.metrics(ctx, "")
	r.noted("nodemetrics", "list on nodemetrics."+slo.GroupName, err)
	linux := metav1.ListOptions{LabelSelector: corev1.LabelOSStable + "!=windows"}
	for _, n := range listed(ctx, r, "nodes", "nodes", r.core.CoreV1().Nodes(), linux).Items {
		if annotation.IsLeaving(n.Annotations) {
			r.in.Left = append(r.in.Left, n.Name)
			continue
		}
		r.in.Nodes = append(r.in.Nodes, view.NodeReport{
			Name: n.Name, Health: health.Of(convert.HealthFacts(&n, metrics[n.Name]), r.in.Now),
			Ready:    slices.Contains(r.agents, n.Name),
			Topology: written[topology.Resource][n.Name],
			Device:   written[devicev1alpha1.Resource().Resource][n.Name],
		})
	}
}

// webhooks reads what is registered, and the authorities that the API server trusts.
func (r *statusReader) webhooks(ctx context.Context) {
	const both = "mutatingwebhookconfigurations and validatingwebhookconfigurations"
	var bundles []byte
	count := func(name string, config admissionv1.WebhookClientConfig) {
		if strings.HasSuffix(name, ".tenon.sh") {
			r.in.Webhooks++
			bundles = slices.Concat(bundles, config.CABundle, []byte("\n"))
		}
	}
	api, all := r.core.AdmissionregistrationV1(), metav1.ListOptions{}
	for _, c := range listed(ctx, r, "webhooks", both, api.ValidatingWebhookConfigurations(), all).Items {
		for _, w := range c.Webhooks {
			count(w.Name, w.ClientConfig)
			for _, m := range w.MatchConditions {
				if m.Name == ownPods {
					r.schedulers = m.Expression
				}
			}
		}
	}
	for _, c := range listed(ctx, r, "webhooks", both, api.MutatingWebhookConfigurations(), all).Items {
		for _, w := range c.Webhooks {
			count(w.Name, w.ClientConfig)
		}
	}
	if r.in.Webhooks > 0 {
		r.certificate("caBundle of the webhooks", bundles)
	}
}

// strategy checks the ConfigMap slo-controller-config, and what a Node says over it unless that is nil. There is no
// finding without a ConfigMap.
func (c cluster) strategy(ctx context.Context, node *corev1.Node) (found []view.Finding, err error) {
	m, err := c.core.CoreV1().ConfigMaps(installedIn()).Get(ctx, sloconfig.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	config, err := sloconfig.Read(m)
	if node != nil {
		_, own := config.Strategy(node)
		err = errors.Join(err, own)
	}
	f := view.Finding{Check: "colocation", Status: view.CheckOK, Found: sloconfig.Name + " is valid"}
	if err == nil {
		return []view.Finding{f}, nil
	}
	f.Found = strings.ReplaceAll(err.Error(), "\n", "; ")
	why := "the last valid data still apply; a Node whose own label or annotation is invalid grants batch pods nothing"
	if config == nil {
		why = "no valid data exist: no Node grants batch amounts"
	}
	return []view.Finding{f.Because(view.CheckWarn, why, "correct the field that the message names")}, nil
}

// authorities reads what the manager publishes, and the certificates that are served; never the keys beside them.
func (r *statusReader) authorities(ctx context.Context, namespace string) {
	at := " of namespace " + namespace
	published, err := r.core.CoreV1().ConfigMaps(namespace).Get(ctx, authorityConfigMap, metav1.GetOptions{})
	if r.noted("authority", "get on configmaps"+at, err) {
		r.certificate("ConfigMap "+authorityConfigMap, []byte(published.Data[authorityKey]))
	}
	serving, err := r.core.CoreV1().Secrets(namespace).Get(ctx, certificateSecret, metav1.GetOptions{})
	for _, server := range []string{"manager.crt", "scheduler.crt"} {
		if r.noted("serving-certificate", "get on secrets"+at, err) && len(serving.Data[server]) > 0 {
			r.certificate(server+" of Secret "+certificateSecret, serving.Data[server])
		}
	}
}

// certificate adds the one of a place that holds longest.
func (r *statusReader) certificate(where string, text []byte) {
	last := view.Certificate{Where: where}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(last.Until) {
			last.From, last.Until = c.NotBefore, c.NotAfter
		}
	}
	r.in.Certificates = append(r.in.Certificates, last)
}

// ownPods is the condition by which the webhooks leave pods of other schedulers alone.
const ownPods = "has-a-scheduler-of-tenon"

// refusedPod is LSR and asks for no CPUs, and keeps all rules of Kubernetes for pods.
const refusedPod = `
metadata: {generateName: tenon-status-, labels: {koordinator.sh/qosClass: LSR}}
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - {name: c, image: none, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
`

// askWebhooks asks the API server, by a dry run, to create a pod that the webhooks must refuse.
func (r *statusReader) askWebhooks(ctx context.Context, namespace string) {
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(refusedPod), pod); err != nil {
		r.in.Admission = err.Error()
		return
	}
	if _, names, ok := strings.Cut(r.schedulers, "['"); ok {
		pod.Spec.SchedulerName, _, _ = strings.Cut(names, "'")
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	switch _, err := r.core.CoreV1().Pods(namespace).Create(ctx, pod, dryRun); {
	case err == nil:
		r.in.Admission = "no webhook was asked about a pod in namespace " + namespace
	case strings.Contains(err.Error(), `.tenon.sh" denied the request`):
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot create resource"):
		r.in.Unread["admission"] = "create on pods of namespace " + namespace + " is missing"
	default:
		r.in.Admission = err.Error()
	}
}
