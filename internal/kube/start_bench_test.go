package kube_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tenon-project/tenon/api/annotation"
	"github.com/tenon-project/tenon/internal/agent/probe"
	"github.com/tenon-project/tenon/internal/kube"
	"github.com/tenon-project/tenon/internal/kube/accounts"
	local "github.com/tenon-project/tenon/internal/local/machine"
)

const topologiesPath = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

// published returns n topologies as the agents of simulated machines write them, through an API server.
func published(b *testing.B, spec string, n int) *server {
	b.Helper()
	d, _, err := local.Parse(spec)
	if err != nil {
		b.Fatal(err)
	}
	m, err := d.Read()
	if err != nil {
		b.Fatal(err)
	}
	_, s := client(b)
	switches := probe.Switches{QueryKubelet: true, CPUSetAllocator: true}
	mode, _ := probe.ModeOf(switches, d.Kubelet.CPU.Policy == annotation.KubeletPolicyStatic, "")
	for i := range n {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		t := probe.Topology(probe.Input{
			NodeName: name, Node: node, Machine: m, Kubelet: d.Kubelet, Mode: mode, Writer: "tenon-agent",
		})
		t.APIVersion, t.Kind = "topology.node.k8s.io/v1alpha2", "NodeResourceTopology"
		t.ResourceVersion, t.Generation = "1", 1
		t.Annotations[annotation.ReportKey] = `{"gen":1}`
		t.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "tenon-agent", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(string(fieldsOf(t.Annotations))),
		}}
		text, err := json.Marshal(t)
		if err != nil {
			b.Fatal(err)
		}
		s.items[topologiesPath] = append(s.items[topologiesPath], text)
	}
	return s
}

func fieldsOf(annotations map[string]string) []byte {
	keys := map[string]any{".": struct{}{}}
	for key := range annotations {
		keys["f:"+key] = struct{}{}
	}
	text, _ := json.Marshal(map[string]any{"f:metadata": map[string]any{"f:annotations": keys}, "f:zones": struct{}{}})
	return text
}

// BenchmarkStart reads all topologies of a cluster into the accounts, as a scheduler does when it starts.
func BenchmarkStart(b *testing.B) {
	for _, spec := range []string{"epyc-2s", "epyc-2s@static"} {
		b.Run("machine="+spec+"/nodes=5000", func(b *testing.B) {
			all := published(b, spec, 5000)
			b.ReportAllocs()
			var used time.Duration
			for b.Loop() {
				began := cpuTime(b)
				store := kube.NewStore()
				i := kube.NewTopologyInformer(all.client(b))
				fed, err := follow(accounts.Accounts{Nodes: store}, "NodeResourceTopology", i)
				if err != nil {
					b.Fatal(err)
				}
				stop := make(chan struct{})
				go i.Run(stop)
				if !cache.WaitForCacheSync(stop, fed.HasSynced) {
					b.Fatal("the cache does not sync")
				}
				used += cpuTime(b) - began
				if v := store.View("node-4999"); v.Machine() == nil {
					b.Fatalf("the account has no machine: %v", v.Facts().Fault)
				}
				close(stop)
			}
			b.ReportMetric(used.Seconds()/float64(b.N), "CPU-s/start")
		})
	}
}

// BenchmarkStartDevices reads all Devices of a cluster into the accounts, each of eight GPUs with ids of its own.
func BenchmarkStartDevices(b *testing.B) {
	const path = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
	_, all := client(b)
	for i := range 1000 {
		name, ids, devices := fmt.Sprintf("node-%d", i), []string{}, []string{}
		for g := range 8 {
			ids = append(ids, fmt.Sprintf(`"GPU-%08x-%d"`, i, g))
			devices = append(devices, fmt.Sprintf(`{"type":"gpu","id":%s,"minor":%d,"health":true,"resources":{`+
				`"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi"},"topology":{"socketID":%d,`+
				`"nodeID":%d,"pcieID":"pci0000:%d0","busID":"0000:%d1:00.0"}}`, ids[g], g, g/4, g/4, g, g))
		}
		links, _ := json.Marshal(`{"links":[{"ids":[` + ids[0] + `,` + ids[1] + `],"type":"NVLink","count":4}]}`)
		all.items[path] = append(all.items[path], fmt.Appendf(nil,
			`{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"annotations":`+
				`{%q:"Own",%q:%s},"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"name":%q,`+
				`"resourceVersion":"1","uid":%q,"managedFields":[{"manager":"a","operation":"Update",`+
				`"fieldsType":"FieldsV1","fieldsV1":%s}]},"spec":{"devices":[%s]}}`, annotation.DeviceModeKey,
			annotation.DeviceLinksKey, links, name, name, fieldsOf(nil), strings.Join(devices, ",")))
	}
	b.ReportAllocs()
	var used time.Duration
	for b.Loop() {
		began := cpuTime(b)
		store := kube.NewStore()
		i := kube.NewDeviceInformer(all.client(b))
		fed, err := follow(accounts.Accounts{Nodes: store}, "Device", i)
		if err != nil {
			b.Fatal(err)
		}
		stop := make(chan struct{})
		go i.Run(stop)
		if !cache.WaitForCacheSync(stop, fed.HasSynced) {
			b.Fatal("the cache does not sync")
		}
		used += cpuTime(b) - began
		if store.View("node-999").Facts().Devices == nil {
			b.Fatal("the account has no devices")
		}
		close(stop)
	}
	b.ReportMetric(used.Seconds()*1000/float64(b.N), "CPU-ms/start")
}

// cpuTime is what the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
