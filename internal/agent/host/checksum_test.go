package host

import (
	"strings"
	"testing"

	kubelet "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"pgregory.net/rapid"

	"github.com/tenon-project/tenon/internal/testkit"
	_ "github.com/tenon-project/tenon/internal/testkit/seed"
)

// TestTheChecksumIsTheKubelets: what the kubelet writes raises no doubt, and the least change does.
func TestTheChecksumIsTheKubelets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-z0-9-]{1,8}`)
		ids := rapid.SliceOfN(word, 0, 3)
		var entries []kubelet.PodDevicesEntry
		for range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := kubelet.PodDevicesEntry{
				PodUID: word.Draw(t, "pod"), ContainerName: word.Draw(t, "container"),
				ResourceName: word.Draw(t, "resource"), DeviceIDs: kubelet.NewDevicesPerNUMA(),
				AllocResp: rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "answer"),
			}
			for range rapid.IntRange(0, 2).Draw(t, "NUMA nodes") {
				e.DeviceIDs[rapid.Int64Range(-1, 3).Draw(t, "NUMA node")] = ids.Draw(t, "ids")
			}
			entries = append(entries, e)
		}
		registered := map[string][]string{}
		for range rapid.IntRange(0, 2).Draw(t, "resources") {
			registered[word.Draw(t, "name")] = ids.Draw(t, "registered")
		}
		text, err := kubelet.New(entries, registered).MarshalCheckpoint()
		testkit.Check(t, err)
		if doubt := checksumDoubt(text); doubt != "" {
			t.Fatalf("%s: %s", text, doubt)
		}
		entries = append(entries, kubelet.PodDevicesEntry{PodUID: "another"})
		other, err := kubelet.New(entries, registered).MarshalCheckpoint()
		testkit.Check(t, err)
		data, _, _ := strings.Cut(string(other), `,"Checksum":`)
		_, sum, _ := strings.Cut(string(text), `,"Checksum":`)
		if doubt := checksumDoubt([]byte(data + `,"Checksum":` + sum)); !strings.Contains(doubt, "is recorded") {
			t.Fatalf("another record with that checksum: %q", doubt)
		}
	})
}

func TestListsOfIDsHaveNoKnownChecksum(t *testing.T) {
	t.Parallel()
	doubt := checksumDoubt([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"u","DeviceIDs":["a"]}]},"Checksum":1}`))
	if !strings.Contains(doubt, "cannot be computed") {
		t.Errorf("got %q", doubt)
	}
}
