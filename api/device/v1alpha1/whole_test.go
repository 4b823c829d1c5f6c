package v1alpha1

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// An object that is read in one pass is what its parts are, each read by itself.
func TestDecodeWholeReadsWhatThePartsSay(t *testing.T) {
	t.Parallel()
	const whole = `{"apiVersion":"scheduling.koordinator.sh/v1alpha1","kind":"Device","metadata":{"name":"n",` +
		`"labels":{"a":"b"},` +
		`"managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]},"spec":` +
		`{"devices":[{"type":"gpu","id":"a","minor":0,"moduleID":1,"health":true,"resources":` +
		`{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"15472384Ki"},"topology":{"socketID":-1,` +
		`"nodeID":0,"pcieID":"p","busID":"b"},"conditions":[{"type":"Healthy","status":"True"}]},` +
		`{"deviceType":"rdma","id":"a","resource":{"koordinator.sh/rdma":100},` +
		`"vfGroups":[{"vfs":[{"minor":-1,"busID":"v"}]}]},` +
		`{"type":"gpu","id":"c","topology":null}]},"status":{"allocations":[{"type":"gpu","entries":[{"name":"p"}]}]}}`
	if decodeWhole([]byte(whole)) == nil {
		t.Fatal("the object is not read in one pass")
	}
	pieces := []string{
		`"`, `{`, `}`, `[`, `]`, `,`, `:`, `null`, `1`, `-2`, `1e999`, `true`, `"gpu"`, `"a"`, `"id":"a",`,
		`"Type":"x",`, `"resources":{},`, `"deviceType":"fpga",`, `"topology":{},`, ``,
	}
	random, read := rand.New(rand.NewPCG(1, 2)), 0
	for range 10_000 {
		at := random.IntN(len(whole))
		to := min(len(whole), at+random.IntN(4)*random.IntN(8))
		text := []byte(whole[:at] + pieces[random.IntN(len(pieces))] + whole[to:])
		got := decodeWhole(text)
		if got == nil {
			continue
		}
		read++
		want, warnings, err := decodeParts(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v, %v (-parts +whole):\n%s", text, warnings, err, diff)
		}
	}
	if read < 100 {
		t.Errorf("only %d objects were read in one pass", read)
	}
}

func BenchmarkDecode(b *testing.B) {
	text := []byte(`{"metadata":{"name":"n"},"spec":{"devices":[{"type":"gpu","id":"a","minor":0,"health":true,` +
		`"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi"},"topology":{"socketID":0,` +
		`"nodeID":0,"pcieID":"p","busID":"b"}}]}}`)
	for name, decode := range map[string]func() bool{
		"whole": func() bool { return decodeWhole(text) != nil },
		"parts": func() bool { _, _, err := decodeParts(text); return err == nil },
	} {
		b.Run("how="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !decode() {
					b.Fatal("not read")
				}
			}
		})
	}
}
