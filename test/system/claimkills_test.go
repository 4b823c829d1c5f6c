package system

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/testkit/object"
)

// heldPrefix begins the names of pods whose first Binding does not reach the API server.
const heldPrefix = "held-"

// bindings is a webhook that holds the first Binding of some pods until its sender is gone.
type bindings struct {
	held chan string // the name of a pod whose Binding is held

	mu   sync.Mutex
	seen map[string]bool
}

// holdBindings registers the webhook.
func (l *local) holdBindings(t *testing.T) *bindings {
	t.Helper()
	b := &bindings{held: make(chan string, kills()), seen: map[string]bool{}}
	server := httptest.NewTLSServer(b)
	t.Cleanup(server.Close)
	fail, none, url := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, server.URL
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hold"}}
	hook.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name: "hold.bindings.test", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, FailurePolicy: &fail,
		TimeoutSeconds: new(int32(30)),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL:      &url,
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"},
			},
		}},
	}}
	_, err := l.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), hook,
		metav1.CreateOptions{})
	testkit.Check(t, err)
	return b
}

// ServeHTTP allows a Binding, but for the first one of a pod to hold, which ends with its sender.
func (b *bindings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &review)
	}
	if err != nil || review.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	name := review.Request.Name
	b.mu.Lock()
	first := strings.HasPrefix(name, heldPrefix) && !b.seen[name]
	b.seen[name] = true
	b.mu.Unlock()
	if first {
		b.held <- name
		select {
		case <-r.Context().Done():
		case <-time.After(25 * time.Second):
		}
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !first}
	_ = json.NewEncoder(w).Encode(&review) // fails where no client waits for it
}

// publish makes a class of all devices of a driver, which maps an extended resource of the same name, and a slice of
// devices on each node.
func (l *local) publish(t *testing.T, driver string, each int, nodes ...string) {
	t.Helper()
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: driver}}
	class.Spec.ExtendedResourceName = new(driver + "/one")
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{
		Expression: fmt.Sprintf("device.driver == %q", driver),
	}}}
	_, err := l.client.ResourceV1().DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	testkit.Check(t, err)
	for _, node := range nodes {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver + "-" + node}}
		s.Spec = resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool: resourcev1.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		}
		for i := range each {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("d", i)})
		}
		_, err := l.client.ResourceV1().ResourceSlices().Create(t.Context(), s, metav1.CreateOptions{})
		testkit.Check(t, err)
	}
}

// claim makes a claim of one device.
func (l *local) claim(t *testing.T, name, class string) {
	t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
	}}
	_, err := l.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(t.Context(), c,
		metav1.CreateOptions{})
	testkit.Check(t, err)
}

// submitWithMadeClaim creates a pod with an extended resource and a claim for it without devices. A scheduler leaves
// such a claim if it ends between its two writes. No scheduler tries the pod before the claim exists.
func (l *local) submitWithMadeClaim(t *testing.T, p *corev1.Pod, class string) {
	t.Helper()
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test"}}
	l.submit(t, p)
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	p, err := pods.Get(t.Context(), p.Name, metav1.GetOptions{})
	testkit.Check(t, err)
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		GenerateName: p.Name + "-extended-resources-", Finalizers: []string{resourcev1.Finalizer},
		Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod")),
		},
	}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{
		Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class},
	}}
	_, err = l.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault).Create(t.Context(), c,
		metav1.CreateOptions{})
	testkit.Check(t, err)
	p.Spec.SchedulingGates = nil
	_, err = pods.Update(t.Context(), p, metav1.UpdateOptions{})
	testkit.Check(t, err)
}

// withClaim is an option of pods.
func withClaim(name string) object.PodOption {
	return func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: &name}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "c"}}
	}
}

// TestClaimsHoldWhileSchedulersDie kills a scheduler between its two writes for a pod with a claim: the claim has its
// device and is reserved for the pod, and the pod has no node. Of the rounds each third has one pod, two pods that
// share the claim, and a gang of two that shares it. In each a pod with an extended resource comes as well. The
// pod of the first round has a claim already, made by a scheduler that died before it wrote the device.
//
// Law: the claim keeps its device, the pod is bound to the node of the device, and no device is given twice: as many
// claims as devices exist get one each, and another one gets none; the same of extended resources. The decisions of all
// schedulers can be made again.
func TestClaimsHoldWhileSchedulersDie(t *testing.T) {
	t.Parallel()
	const driver, mapped = "gpu.example.com", "nic.example.com"
	nodes := []string{"epyc-2s-0", "epyc-2s-1"}
	l := up(t, 2, "--journal=true", "--machine", "epyc-2s=2")
	l.publish(t, driver, kills()/len(nodes), nodes...)
	l.publish(t, mapped, kills()/len(nodes), nodes...)
	hold := l.holdBindings(t)
	claims := l.client.ResourceV1().ResourceClaims(metav1.NamespaceDefault)
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	owner := map[string]string{} // of each device
	for round := range kills() {
		name := heldPrefix + strconv.Itoa(round)
		l.claim(t, name, driver)
		l.submit(t, claimant(name, name, round))
		members := []string{name}
		if round%3 > 0 {
			members = append(members, "beside-"+strconv.Itoa(round))
			l.submit(t, claimant(members[1], name, round))
		}
		nic := pod("nic-"+strconv.Itoa(round), object.Both(mapped+"/one", "1"))
		if round == 0 {
			l.submitWithMadeClaim(t, nic, mapped)
		} else {
			l.submit(t, nic)
		}
		select {
		case held := <-hold.held:
			if held != name {
				t.Fatalf("the Binding of %s is held, want that of %s", held, name)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no Binding of %s comes", name)
		}
		before, err := claims.Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		testkit.Check(t, err)
		if before.Status.Allocation == nil || !reserves(before, p.UID) || p.Spec.NodeName != "" {
			t.Fatalf("%s has node %q when its Binding is held, and its claim %+v", name, p.Spec.NodeName, before.Status)
		}
		device := before.Status.Allocation.Devices.Results[0]
		if other := owner[device.Pool+"/"+device.Device]; other != "" {
			t.Errorf("%s has device %s of node %s, which %s has", name, device.Device, device.Pool, other)
		}
		owner[device.Pool+"/"+device.Device] = name
		l.killLeader(t)
		waitFor(t, time.Minute, "the pods of "+name+" to be bound", func() error {
			after, err := claims.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !reflect.DeepEqual(before.Status.Allocation, after.Status.Allocation) {
				t.Fatalf("%s had %+v, has %+v", name, before.Status.Allocation, after.Status.Allocation)
			}
			for _, member := range members {
				p, err := pods.Get(t.Context(), member, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if p.Spec.NodeName != device.Pool || !reserves(after, p.UID) {
					return fmt.Errorf("%s is on node %q, want %s; reserved for %v", member, p.Spec.NodeName,
						device.Pool, after.Status.ReservedFor)
				}
			}
			return nil
		})
	}
	for round := range kills() {
		name := "nic-" + strconv.Itoa(round)
		waitFor(t, time.Minute, name+" to have its device", func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if p.Spec.NodeName == "" || p.Status.ExtendedResourceClaimStatus == nil {
				return fmt.Errorf("it is on node %q with %+v", p.Spec.NodeName, p.Status)
			}
			made := p.Status.ExtendedResourceClaimStatus.ResourceClaimName
			c, err := claims.Get(t.Context(), made, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if c.Status.Allocation == nil || !reserves(c, p.UID) {
				return fmt.Errorf("its claim has %+v", c.Status)
			}
			device := c.Status.Allocation.Devices.Results[0]
			id := device.Driver + "/" + device.Pool + "/" + device.Device
			if other := owner[id]; device.Pool != p.Spec.NodeName || other != "" {
				t.Errorf("%s on node %s has %s, which %q has", name, p.Spec.NodeName, id, other)
			}
			owner[id] = name
			return nil
		})
	}
	l.claim(t, "late", driver)
	l.submit(t, claimant("late", "late", 0))
	l.submit(t, pod("late-nic", object.Both(mapped+"/one", "1")))
	for _, name := range []string{"late", "late-nic"} {
		waitFor(t, time.Minute, name+" to be refused", func() error {
			p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if _, c := podutil.GetPodCondition(&p.Status, corev1.PodScheduled); p.Spec.NodeName != "" || c == nil ||
				!strings.Contains(c.Message, "InsufficientClaimDevices") {
				return fmt.Errorf("on node %q: %+v", p.Spec.NodeName, c)
			}
			return nil
		})
	}
	waitFor(t, time.Minute, "the last decision to be in a journal", func() error {
		files, err := filepath.Glob(filepath.Join(l.dir, "journal", "*", "*.jsonl"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if strings.Contains(string(text), `"decision":{"pod":"default/late-nic"`) {
				return nil
			}
		}
		return fmt.Errorf("none of %d files has it", len(files))
	})
	l.replay(t)
}

// claimant returns a pod with a claim; of each third round it is a member of a gang of two.
func claimant(name, claim string, round int) *corev1.Pod {
	options := []object.PodOption{withClaim(claim), object.Requests("cpu", "1")}
	if round%3 == 2 {
		options = append(options, object.Gang(claim, "2"))
	}
	return pod(name, options...)
}

// reserves reports whether a claim is reserved for a pod.
func reserves(c *resourcev1.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(c.Status.ReservedFor,
		func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod })
}
