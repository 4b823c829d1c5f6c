package manifests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	quotav1alpha1 "github.com/tenon-project/tenon/api/quota/v1alpha1"
	"github.com/tenon-project/tenon/api/scheduling/v1alpha1"
	"github.com/tenon-project/tenon/deploy"
	"github.com/tenon-project/tenon/internal/local/install"
	"github.com/tenon-project/tenon/internal/testkit"
)

// managerConfig is that of the manager's own service account.
func (c *cluster) managerConfig(t *testing.T) *rest.Config {
	t.Helper()
	answer, err := c.client.CoreV1().ServiceAccounts("tenon-system").CreateToken(t.Context(), "tenon-manager",
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	testkit.Check(t, err)
	return &rest.Config{
		Host: c.config.Host, BearerToken: answer.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.config.CAData},
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	testkit.Check(t, err)
	defer func() { testkit.Check(t, l.Close()) }()
	return l.Addr().String()
}

func await(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, done)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// controllers checks what the leading manager does for quotas with the rights of its own account, and that a missing
// right shows in its metrics.
func (c *cluster) controllers(t *testing.T) {
	client, err := dynamic.NewForConfig(c.config)
	testkit.Check(t, err)
	quotas := map[string]dynamic.ResourceInterface{}
	for group, name := range map[string]string{
		v1alpha1.GroupName: "borrower", v1alpha1.CommunityGroupName: "lender",
	} {
		quotas[name] = client.Resource(v1alpha1.Resource(group)).Namespace("default")
		_, err := quotas[name].Create(t.Context(), elasticQuota(group, name, "", "20", "60"), metav1.CreateOptions{})
		testkit.Check(t, err)
	}
	inQuota := func(name, quotaName string) *corev1.Pod {
		p := pod(name, "LS", "20")
		p.Labels[annotation.QuotaName] = quotaName
		return p
	}
	used := func(name, want string) {
		t.Helper()
		await(t, "status.used of "+name+" is "+want, func(ctx context.Context) (bool, error) {
			q, err := quotas[name].Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			got, _, err := unstructured.NestedString(q.Object, "status", "used", "cpu")
			return got == want && q.GetAnnotations()[annotation.QuotaRuntime] != "", err
		})
	}
	pods := c.client.CoreV1().Pods("default")
	c.run(t, inQuota("lent", "lender"))
	used("lender", "20")
	testkit.Check(t, pods.Delete(t.Context(), "lent", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	used("lender", "0")

	names := []string{"borrowed-0", "borrowed-1", "borrowed-2"}
	for _, name := range names {
		c.run(t, inQuota(name, "borrower"))
	}
	used("borrower", "60")
	claimant, err := pods.Create(t.Context(), inQuota("claimant", "lender"), metav1.CreateOptions{})
	testkit.Check(t, err)
	claimant.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: 1 Insufficient cpu.",
	}}
	_, err = pods.UpdateStatus(t.Context(), claimant, metav1.UpdateOptions{})
	testkit.Check(t, err)
	await(t, "a pod of the borrower is evicted", func(ctx context.Context) (bool, error) {
		for _, name := range names {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && p.DeletionTimestamp != nil {
				return true, nil
			}
		}
		return false, nil
	})

	profile := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"quotaName": "pool", "nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "none"}},
	}}}
	profile.SetGroupVersionKind(quotav1alpha1.Resource().GroupVersion().WithKind("ElasticQuotaProfile"))
	profile.SetName("pool")
	_, err = client.Resource(quotav1alpha1.Resource()).Namespace("default").Create(t.Context(), profile,
		metav1.CreateOptions{})
	testkit.Check(t, err)
	await(t, "the quota of the profile", func(ctx context.Context) (bool, error) {
		q, err := quotas["borrower"].Get(ctx, "pool", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && q.GetLabels()[annotation.QuotaProfile] == "pool", err
	})

	for group, label := range map[string]string{
		v1alpha1.GroupName: annotation.PodGroup, v1alpha1.CommunityGroupName: annotation.CommunityPodGroup,
	} {
		gang := "of-" + group
		groups := client.Resource(v1alpha1.PodGroupResource(group)).Namespace("default")
		create := func(name string, least int64) error {
			g := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": least}}}
			g.SetGroupVersionKind(v1alpha1.PodGroupResource(group).GroupVersion().WithKind("PodGroup"))
			g.SetName(name)
			_, err := groups.Create(t.Context(), g, metav1.CreateOptions{})
			return err
		}
		if err := create("negative", -1); !apierrors.IsInvalid(err) {
			t.Errorf("a PodGroup with a negative minimum: %v, want Invalid", err)
		}
		testkit.Check(t, create(gang, 1))
		p := pod("member-"+group, "LS", "1")
		p.Labels[label] = gang
		c.run(t, p)
		await(t, "the PodGroup of "+group+" is Running", func(ctx context.Context) (bool, error) {
			g, err := groups.Get(ctx, gang, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			phase, _, err := unstructured.NestedString(g.Object, "status", "phase")
			conditions, _, _ := unstructured.NestedSlice(g.Object, "status", "conditions")
			return phase == string(v1alpha1.PodGroupRunning) && len(conditions) == 1, err
		})
	}

	c.showsDevices(t, client)
	c.ownsPodsWithDevices(t)
	bindings := c.client.RbacV1().ClusterRoleBindings()
	testkit.Check(t, bindings.Delete(t.Context(), "tenon-manager", metav1.DeleteOptions{}))
	c.run(t, inQuota("lent", "lender"))
	failed := regexp.MustCompile(`tenon_quota_status_writes_total{outcome="failed"} [1-9]`)
	await(t, "writes without rights are counted as failed", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.metrics+"/metrics", http.NoBody)
		if err != nil {
			return false, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false, err
		}
		text, err := io.ReadAll(response.Body)
		if err != nil {
			return false, err
		}
		return failed.Match(text), response.Body.Close()
	})
	objects, err := install.Parse(deploy.RBAC()...)
	testkit.Check(t, err)
	testkit.Check(t, c.applier.Apply(t.Context(), objects))
	used("lender", "20")
}

// showsDevices checks that a node shows its devices whatever a kubelet made of them, and keeps what is not ours.
func (c *cluster) showsDevices(t *testing.T, client dynamic.Interface) {
	t.Helper()
	const core = corev1.ResourceName("koordinator.sh/gpu-core")
	gpu := func(id string) map[string]any { return map[string]any{"type": "gpu", "id": id, "health": true} }
	device := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"devices": []any{gpu("a"), gpu("b")}},
	}}
	device.SetGroupVersionKind(devicev1alpha1.Resource().GroupVersion().WithKind("Device"))
	device.SetName("n0")
	device.SetLabels(map[string]string{annotation.GPUModelLabel: "H100"})
	_, err := client.Resource(devicev1alpha1.Resource()).Create(t.Context(), device, metav1.CreateOptions{})
	testkit.Check(t, err)
	shows := func(ctx context.Context) (bool, error) {
		n, err := c.client.CoreV1().Nodes().Get(ctx, "n0", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		capacity, allocatable := n.Status.Capacity[core], n.Status.Allocatable[core]
		return capacity.Value() == 200 && allocatable.Value() == 200 && n.Labels[annotation.GPUModelLabel] == "H100" &&
			n.Status.Allocatable.Cpu().Value() == 64, nil
	}
	await(t, "the node shows two GPUs", shows)
	_, err = c.client.CoreV1().Nodes().Patch(t.Context(), "n0", types.StrategicMergePatchType,
		[]byte(`{"status":{"capacity":{"koordinator.sh/gpu-core":"0"},"allocatable":{"koordinator.sh/gpu-core":"0"}}}`),
		metav1.PatchOptions{FieldManager: "kubelet"}, "status")
	testkit.Check(t, err)
	await(t, "the node shows two GPUs again", shows)
}

// ownsPodsWithDevices checks that in a namespace that asks for it only Tenon schedules pods with devices.
func (c *cluster) ownsPodsWithDevices(t *testing.T) {
	t.Helper()
	_, err := c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "train", Labels: map[string]string{annotation.DeviceSchedulingLabel: "enabled"},
	}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	_, err = c.client.CoreV1().ServiceAccounts("train").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	testkit.Check(t, err)
	create := func(namespace, name, resourceName string) *corev1.Pod {
		p := pod(name, "", "1")
		p.Namespace = namespace
		amounts := p.Spec.Containers[0].Resources
		amounts.Requests[corev1.ResourceName(resourceName)] = resource.MustParse("1")
		if amounts.Limits == nil {
			amounts.Limits = corev1.ResourceList{}
		}
		amounts.Limits[corev1.ResourceName(resourceName)] = resource.MustParse("1")
		p.Spec.Containers[0].Resources = amounts
		created, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
		testkit.Check(t, err)
		return created
	}
	for _, tt := range []struct {
		namespace, resource, scheduler string
		refused                        bool
	}{
		{"train", "nvidia.com/gpu", "tenon-scheduler", true},
		{"train", "cpu", "default-scheduler", false},
		{"default", "nvidia.com/gpu", "default-scheduler", false},
	} {
		p := create(tt.namespace, "owned-"+strings.ReplaceAll(tt.resource, "/", "-"), tt.resource)
		if p.Spec.SchedulerName != tt.scheduler {
			t.Errorf("pod %s/%s has the scheduler %s, want %s", p.Namespace, p.Name, p.Spec.SchedulerName, tt.scheduler)
		}
		binding := &corev1.Binding{Target: corev1.ObjectReference{Name: "n0"}}
		binding.Name = p.Name
		await(t, "an answer about the Binding of "+p.Name, func(ctx context.Context) (bool, error) {
			err := c.client.CoreV1().Pods(p.Namespace).Bind(ctx, binding, metav1.CreateOptions{})
			switch {
			case apierrors.IsServiceUnavailable(err): // the pod is not seen yet
				return false, nil
			case tt.refused && apierrors.IsInvalid(err):
				return true, nil
			case tt.refused:
				return false, fmt.Errorf("bound by a outsider, or refused in another way: %w", err)
			}
			return true, err
		})
	}
}
