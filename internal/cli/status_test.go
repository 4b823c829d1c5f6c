package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/api/config/sloconfig"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/api/node/v1alpha2"
	slo "github.com/tenon-project/tenon/api/slo/v1alpha1"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// installed are the objects of an installation with one ready replica of everything on node a.
func installed(t *testing.T) []runtime.Object {
	t.Helper()
	_, trusted := authority(t, 3*time.Hour)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "tenon-system", Name: name, Labels: map[string]string{componentLabel: name},
		}
	}
	hook := admissionv1.WebhookClientConfig{CABundle: []byte(trusted)}
	objects := []runtime.Object{
		&appsv1.Deployment{ObjectMeta: meta("tenon-scheduler"), Status: appsv1.DeploymentStatus{ReadyReplicas: 1}},
		&appsv1.Deployment{ObjectMeta: meta("tenon-manager"), Status: appsv1.DeploymentStatus{ReadyReplicas: 1}},
		&appsv1.DaemonSet{
			ObjectMeta: meta("tenon-agent"), Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, NumberReady: 1},
		},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		&corev1.ConfigMap{ObjectMeta: meta("tenon-ca"), Data: map[string]string{"ca.crt": trusted}},
		&corev1.Secret{ObjectMeta: meta(certificateSecret), Data: map[string][]byte{"manager.crt": []byte(trusted)}},
		&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "tenon"},
			Webhooks:   []admissionv1.ValidatingWebhook{{Name: "validate-new.pods.tenon.sh", ClientConfig: hook}},
		},
		&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "other"},
			Webhooks:   []admissionv1.MutatingWebhook{{Name: "pods.example.com"}},
		},
	}
	for name, namespace := range map[string]string{"tenon-scheduler": "kube-system", "tenon-manager": "tenon-system"} {
		holder, renewed, seconds := name+"-0_uid", metav1.NowMicro(), int32(15)
		lease := &coordinationv1.Lease{ObjectMeta: meta(name), Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, AcquireTime: &renewed, RenewTime: &renewed, LeaseDurationSeconds: &seconds,
		}}
		lease.Namespace = namespace
		objects = append(objects, lease)
	}
	for name, image := range map[string]string{
		"tenon-scheduler": "registry:5000/tenon-scheduler:v0.2.0", "tenon-manager": "tenon-manager:v0.2.0@sha256:00",
		"tenon-agent": "tenon-agent@sha256:00",
	} {
		p := &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{
			NodeName: "a", Containers: []corev1.Container{{Image: image}},
		}}
		p.Name += "-0"
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if name == "tenon-agent" {
			p.Labels["app.kubernetes.io/version"] = "v0.2.0"
		}
		objects = append(objects, p)
	}
	return objects
}

// readFrom reads the status from fake clients; refuse answers in place of them where it returns an error.
func readFrom(t *testing.T, objects []runtime.Object, refuse func(clienttesting.Action) error) view.Status {
	t.Helper()
	scheme := runtime.NewScheme()
	topology := &v1alpha2.NodeResourceTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: "topology.node.k8s.io/v1alpha2", Kind: "NodeResourceTopology"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.Now()},
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(topology)
	testkit.Check(t, err)
	older, current := &unstructured.Unstructured{Object: maps.Clone(u)}, v1alpha2.Resource()
	older.SetAPIVersion("topology.node.k8s.io/v1alpha1")
	core := fake.NewClientset(objects...)
	custom := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, map[schema.GroupVersionResource]string{
		current: "NodeResourceTopologyList", devicev1alpha1.Resource(): "DeviceList",
		current.GroupResource().WithVersion("v1alpha1"): "NodeResourceTopologyList",
		slo.NodeMetrics(): "NodeMetricList",
	}, &unstructured.Unstructured{Object: u}, older)
	react := func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := refuse(a)
		return err != nil, nil, err
	}
	core.PrependReactor("*", "*", react)
	custom.PrependReactor("*", "*", react)
	r := newStatusReader(cluster{core: core, dynamic: custom})
	testkit.Check(t, r.read(t.Context(), "default"))
	return view.StatusOf(&r.in)
}

// denied is the answer of the webhooks to the pod that they must refuse.
func denied(a clienttesting.Action) error {
	if a.Matches("create", "pods") {
		return errors.New(`admission webhook "validate-new.pods.tenon.sh" denied the request: no`)
	}
	return nil
}

func TestStatusOfAnInstallation(t *testing.T) {
	t.Parallel()
	status := readFrom(t, installed(t), denied)
	beside := readFrom(t, installed(t), func(a clienttesting.Action) error { // a CRD of an older Koordinator
		if r := a.GetResource(); r == v1alpha2.Resource() {
			return apierrors.NewNotFound(r.GroupResource(), "")
		}
		return denied(a)
	})
	for _, f := range slices.Concat(status.Findings, beside.Findings) {
		if f.Status != view.CheckOK {
			t.Errorf("%s is %s: %s", f.Check, f.Status, f.Found)
		}
	}
	if !status.IsComplete() || len(status.Components) != 3 {
		t.Errorf("components: %+v", status.Components)
	}
	for _, c := range status.Components {
		if len(c.Versions) != 1 || c.Versions[0] != "v0.2.0" {
			t.Errorf("%s has the versions %v", c.Name, c.Versions)
		}
		if c.LeaseEnds != nil && c.Leader != c.Name+"-0" || c.LeaseEnds == nil && c.Name != "tenon-agent" {
			t.Errorf("%s is led by %q until %v", c.Name, c.Leader, c.LeaseEnds)
		}
		if c.LeaseEnds != nil && (c.LeaderVersion != "v0.2.0" || c.LeaderSince == nil) || c.Pods["v0.2.0"] != 1 {
			t.Errorf("%s is led by %q since %v, its pods are %v", c.Name, c.LeaderVersion, c.LeaderSince, c.Pods)
		}
	}
}

// TestAStrategyWithAnErrorIsFound: status and doctor check the ConfigMap slo-controller-config, doctor also what the
// Node says over it.
func TestAStrategyWithAnErrorIsFound(t *testing.T) {
	t.Parallel()
	const valid, invalid = `{"enable":true}`, `{"enable":"x"}`
	for name, c := range map[string]struct {
		said, noted, ratio string
		status             view.CheckStatus
		found, why         string
	}{
		"valid data": {valid, "", "", view.CheckOK, "slo-controller-config is valid", ""},
		"an error": {
			invalid, "", "", view.CheckWarn, `colocation-config:1:2: enable: "x" is not allowed`,
			"no valid data exist",
		},
		"an error after valid data": {
			invalid, `{"colocation-config":"{}"}`, "", view.CheckWarn, `enable: "x" is not allowed`,
			"the last valid data",
		},
		"an error of the Node": {valid, "", "much", view.CheckWarn, `Invalid value "much"`, "a Node whose own label"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				Namespace: "tenon-system", Name: sloconfig.Name,
				Annotations: map[string]string{annotation.LastValidStrategy: c.noted},
			}, Data: map[string]string{sloconfig.ColocationKey: c.said}}
			node := &corev1.Node{}
			if c.ratio != "" {
				node.Labels = map[string]string{annotation.NodeCPUReclaimRatio: c.ratio}
			}
			found, err := cluster{core: fake.NewClientset(m)}.strategy(t.Context(), node)
			if err != nil || len(found) != 1 || found[0].Status != c.status ||
				!strings.Contains(found[0].Found, c.found) || !strings.Contains(found[0].Why, c.why) {
				t.Errorf("got %+v, %v; want %s with %q and %q", found, err, c.status, c.found, c.why)
			}
			said := readFrom(t, append(installed(t), m), denied)
			i := slices.IndexFunc(said.Findings, func(f view.Finding) bool { return f.Check == "colocation" })
			if i < 0 || (said.Findings[i].Status == view.CheckOK) != (c.said == valid) {
				t.Errorf("the status is %+v", said.Findings)
			}
		})
	}
}

// TestStatusSaysWhyPodsDoNotGetReady, and nothing of those that start.
func TestStatusSaysWhyPodsDoNotGetReady(t *testing.T) {
	t.Parallel()
	waits := func(reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Image: "localhost/tenon-manager:v9", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: reason},
				},
			}}
		}
	}
	for name, c := range map[string]struct {
		pod  func(*corev1.Pod)
		want string
	}{
		"an image that is missing": {
			waits("ImagePullBackOff"), "; ImagePullBackOff, image localhost/tenon-manager:v9",
		},
		"a program that ends":     {waits("CrashLoopBackOff"), "; CrashLoopBackOff, image localhost/tenon-manager:v9"},
		"a container that starts": {waits("ContainerCreating"), ""},
		"no node that takes it": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes",
			}}
		}, "; Unschedulable: 0/1 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := installed(t)
			for _, o := range objects {
				switch o := o.(type) {
				case *corev1.Pod:
					if o.Labels[componentLabel] == "tenon-manager" {
						c.pod(o)
					}
				case *appsv1.Deployment:
					if o.Name == "tenon-manager" {
						o.Status.ReadyReplicas = 0
					}
				}
			}
			status := readFrom(t, objects, denied)
			found := ""
			for _, f := range status.Findings {
				if f.Check == "tenon-manager" {
					found = f.Found
				}
			}
			if want := "0 of 1 ready" + c.want; found != want {
				t.Errorf("got %q, want %q", found, want)
			}
		})
	}
}

// TestStatusNamesTheRightsThatAreMissing, and blames no component for what could not be read.
func TestStatusNamesTheRightsThatAreMissing(t *testing.T) {
	t.Parallel()
	status := readFrom(t, installed(t), func(a clienttesting.Action) error {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("cannot create resource"))
	})
	text := ""
	for _, f := range status.Findings {
		if f.Status != view.CheckUnknown && f.Check != "diagnostics" {
			t.Errorf("%s is %s: %s", f.Check, f.Status, f.Found)
		}
		text += f.Found + "\n"
	}
	for _, right := range []string{
		"list on deployments of namespace tenon-system", "list on daemonsets of namespace tenon-system",
		"list on pods of namespace tenon-system", "list on nodes", "get on secrets of namespace tenon-system",
		"get on configmaps of namespace tenon-system", "create on pods of namespace default",
		"list on mutatingwebhookconfigurations and validatingwebhookconfigurations",
	} {
		if !strings.Contains(text, right+" is missing") {
			t.Errorf("%s is not named in\n%s", right, text)
		}
	}
}

func TestCertificatesAreNotValidForTensOfThousandsOfHours(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		87599*time.Hour + 58*time.Minute: "10y", 90*24*time.Hour - time.Second: "90d", 3 * time.Hour: "3h",
		48*time.Hour + time.Minute: "2d", 10 * time.Minute: "10m", 30 * time.Second: "30s",
		400 * 24 * time.Hour: "400d",
	} {
		if got := durationText(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	objects := installed(t)
	for _, o := range objects {
		if m, ok := o.(*corev1.ConfigMap); ok {
			_, m.Data[authorityKey] = authority(t, 87599*time.Hour+58*time.Minute)
		}
	}
	for _, f := range readFrom(t, objects, denied).Findings {
		if f.Where == "ConfigMap "+authorityConfigMap && f.Found != "valid for 10y" {
			t.Errorf("got %q, want \"valid for 10y\"", f.Found)
		}
	}
}

func TestStatusNamesWhatTheAPIServerServesAndLacks(t *testing.T) {
	t.Parallel()
	const claims = "resource.k8s.io/v1 resourceclaims"
	for name, test := range map[string]struct {
		version string
		serves  []string
		want    string
	}{
		"1.34": {
			"v1.34.2",
			[]string{claims},
			"v1.34.2: Tenon works without podgroups.scheduling.k8s.io, compositepodgroups.scheduling.k8s.io, " +
				"evictionrequests.lifecycle.k8s.io",
		},
		"1.36 with gangs": {
			"v1.36.3",
			[]string{claims, "scheduling.k8s.io/v1alpha2 podgroups"},
			"v1.36.3 with podgroups of scheduling.k8s.io/v1alpha2 (feature gate GenericWorkload is on): Tenon works " +
				"without compositepodgroups.scheduling.k8s.io, evictionrequests.lifecycle.k8s.io",
		},
		"1.37 with all of them": {
			"v1.37.2",
			[]string{
				claims, "scheduling.k8s.io/v1beta1 podgroups", "scheduling.k8s.io/v1alpha3 compositepodgroups",
				"lifecycle.k8s.io/v1alpha1 evictionrequests",
			},
			"v1.37.2 with podgroups of scheduling.k8s.io/v1beta1 (feature gate GenericWorkload is on), " +
				"compositepodgroups of scheduling.k8s.io/v1alpha3 (feature gate CompositePodGroup is on)",
		},
		"another resource of the group": {
			"v1.37.2",
			[]string{claims, "lifecycle.k8s.io/v1alpha1 evictions", "scheduling.k8s.io/v1beta1 workloads"},
			"v1.37.2: Tenon works without podgroups.scheduling.k8s.io, compositepodgroups.scheduling.k8s.io, " +
				"evictionrequests.lifecycle.k8s.io",
		},
	} {
		core := fake.NewClientset()
		served := core.Discovery().(*discoveryfake.FakeDiscovery)
		served.FakedServerVersion = &version.Info{GitVersion: test.version}
		for _, s := range test.serves {
			group, resource, _ := strings.Cut(s, " ")
			served.Resources = append(served.Resources, &metav1.APIResourceList{
				GroupVersion: group, APIResources: []metav1.APIResource{{Name: resource}},
			})
		}
		r := newStatusReader(cluster{core: core})
		r.kubernetes()
		for _, f := range view.StatusOf(&r.in).Findings {
			if f.Check == "kubernetes" && (f.Found != test.want || f.Status != view.CheckOK) {
				t.Errorf("%s: %s: %q, want %q", name, f.Status, f.Found, test.want)
			}
		}
		if r.in.Kubernetes == "" || r.failed != nil {
			t.Errorf("%s: version %q, %v", name, r.in.Kubernetes, r.failed)
		}
	}
}

func TestStatusOfAnEmptyCluster(t *testing.T) {
	t.Parallel()
	status := readFrom(t, nil, func(clienttesting.Action) error { return nil })
	got := map[string]bool{}
	for _, f := range status.Findings {
		got[fmt.Sprintf("%s %s", f.Check, f.Status)] = true
	}
	for _, want := range []string{"tenon-scheduler fail", "tenon-manager fail", "tenon-agent fail", "webhooks fail"} {
		if !got[want] {
			t.Errorf("no %q among %v", want, got)
		}
	}
}

// TestStatusWaits until the installation is complete, over an API server that is away at first.
func TestStatusWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		tries := 0
		status, err := awaitStatus(ctx, func() (view.Status, error) {
			tries++
			switch tries {
			case 1:
				return view.Status{}, errors.New("connection refused")
			case 2:
				return view.Status{Components: []view.Component{{Desired: 1}}}, nil
			}
			return view.Status{Components: []view.Component{{Desired: 1, Ready: 1}}}, nil
		})
		if err != nil || tries != 3 || !status.IsComplete() {
			t.Errorf("%d tries, %v, complete %t", tries, err, status.IsComplete())
		}
		tries = 0
		if _, err := awaitStatus(ctx, func() (view.Status, error) {
			return view.Status{}, errors.New("away")
		}); err == nil {
			t.Error("an API server that stays away is not reported")
		}
	})
}
