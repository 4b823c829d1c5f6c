package annotation_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/tenon-project/tenon/api/annotation"
)

// roundTrip checks one codec: no text makes it panic, an error carries an offset inside the text, and what was read
// once is written and read again without change or warning.
func roundTrip[T any](f *testing.F, parse func(string) (T, []Warning, error), seeds ...string) {
	f.Helper()
	for _, s := range append(seeds, "", "null", "{}", "[]", `{"a":1}`, `[null]`, `{"`) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, _, err := parse(text)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Offset < 0 || e.Offset > int64(len(text))+1 {
				t.Fatalf("parse %q: error %#v has no offset inside the text", text, err)
			}
			return
		}
		first := Encode(v)
		again, warnings, err := parse(first)
		if err != nil || len(warnings) != 0 {
			t.Fatalf("%q was read and written as %s, which reads with %v, %v", text, first, warnings, err)
		}
		if second := Encode(again); second != first {
			t.Fatalf("%q was written as %s, then as %s", text, first, second)
		}
	})
}

func FuzzResourceSpec(f *testing.F) {
	roundTrip(f, ParseResourceSpec, `{"requiredCPUBindPolicy":"PCPUOnly","preferredCPUExclusivePolicy":"Default"}`)
}

func FuzzNUMATopologySpec(f *testing.F) {
	roundTrip(f, ParseNUMATopologySpec, `{"numaTopologyPolicy":"best-effort"}`)
}

func FuzzResourceStatus(f *testing.F) {
	roundTrip(f, ParseResourceStatus, `{"cpuset":"0-3","numaNodeResources":[{"node":0,"resources":{"cpu":1.5}}]}`)
}

func FuzzKubeletCPUManager(f *testing.F) {
	roundTrip(f, ParseKubeletCPUManager, `{"policy":"static","options":{"full-pcpus-only":"True"}}`)
}

func FuzzCPUTopologyDetail(f *testing.F) {
	roundTrip(f, ParseCPUTopologyDetail, `{"detail":[{"id":0,"l3":null},{"id":1,"l3":2}]}`)
}

func FuzzPodCPUAllocs(f *testing.F) {
	roundTrip(f, ParsePodCPUAllocs, `[{"cpu":"4-8","managedByKubelet":"true"}]`)
}

func FuzzReservation(f *testing.F) {
	roundTrip(f, ParseReservation, `{"resources":{"cpu":2},"applyPolicy":"default"}`)
}

func FuzzReservationAffinity(f *testing.F) {
	roundTrip(f, ParseReservationAffinity,
		`{"name":"r","tolerations":[{"key":"k","operator":"Exists"}],"reservationSelector":{"a":"b"}}`,
		`{"requiredDuringSchedulingIgnoredDuringExecution":{"reservationSelectorTerms":[{"matchExpressions":`+
			`[{"key":"a","operator":"Gt","values":["1"]}],"matchFields":[{"key":"metadata.name","operator":"In",`+
			`"values":["r"]}]}]}}`)
}

func FuzzReservationOwners(f *testing.F) {
	roundTrip(f, ParseReservationOwners, `[{"labelSelector":{"matchLabels":{"app":"web"}}}]`)
}

func FuzzCurrentOwner(f *testing.F) {
	roundTrip(f, ParseCurrentOwner, `{"namespace":"a","name":"p","uid":"u"}`)
}

func FuzzExactMatchReservation(f *testing.F) {
	roundTrip(f, ParseExactMatchReservation, `{"resourceNames":["cpu"]}`)
}

func FuzzReservationRestrictedOptions(f *testing.F) {
	roundTrip(f, ParseReservationRestrictedOptions, `{"resources":["cpu"]}`)
}

func FuzzReservationAllocated(f *testing.F) {
	roundTrip(f, ParseReservationAllocated, `{"name":"r","uid":"u"}`)
}

func FuzzMigrationRoom(f *testing.F) {
	roundTrip(f, ParseMigrationRoom, `{"pods":[{"namespace":"a","name":"b","uid":"u","node":"n"}]}`)
}

func FuzzMigrationStart(f *testing.F) {
	roundTrip(f, ParseMigrationStart, `{"time":"2026-01-02T03:04:05Z","node":"n","workload":"w","gang":"a/g"}`)
}

func FuzzEvictionPolicy(f *testing.F) {
	roundTrip(f, ParseEvictionPolicy, `["BEMemoryEvict","BECPUEvict"]`, `"BEMemoryEvict"`)
}

func FuzzEvictionCost(f *testing.F) {
	plain(f, ParseEvictionCost, "2147483647", "+3", "007", "2147483648")
}

func FuzzReservationOrder(f *testing.F) { plain(f, ParseReservationOrder, "7") }

func FuzzPreAllocatablePriority(f *testing.F) {
	plain(f, ParsePreAllocatablePriority, "7", "-1", "1e3")
}

func FuzzSystemQoSResource(f *testing.F) {
	roundTrip(f, ParseSystemQoSResource, `{"cpuset":"0-1","cpusetExclusive":false}`)
}

func FuzzTakeover(f *testing.F) {
	roundTrip(f, ParseTakeover, `{"phase":2,"since":"2026-01-02T03:04:05Z"}`)
}

func FuzzKubelet(f *testing.F) {
	roundTrip(f, ParseKubelet,
		`{"version":"v1.36.3","cpu":{"policy":"Static","options":{"full-pcpus-only":"True"},"reserved":"0"},`+
			`"memory":{"policy":"static","reserved":{"0":{"memory":"1Gi"}}},"topology":{"policy":"restricted",`+
			`"scope":"pod","options":{"max-allowable-numa-nodes":"16"}},"gates":{"A":true}}`)
}

func FuzzNUMAState(f *testing.F) {
	roundTrip(f, ParseNUMAState,
		`{"memory":{"0":{"allocatable":{"memory":"1Gi"},"free":{},"group":[0],"assignments":2}},`+
			`"devices":{"nvidia.com/gpu":[{"numa":[0],"total":4,"free":3}]},`+
			`"pods":{"u":{"c":{"cpus":"2-5","memory":{"0-1":"4Gi"},"hugepages":{"hugepages-2Mi":{"0":"2Mi"}},`+
			`"devices":{"nvidia.com/gpu":{"mask":null,"count":1}}}}}}`)
}

func FuzzPredictedPlacement(f *testing.F) {
	roundTrip(f, ParsePredictedPlacement,
		`{"model":"1.36","gen":412,"containers":{"c":{"mask":[0,1],"preferred":true,"cpus":"2-5",`+
			`"memory":{"0":"4Gi"},"devices":{"g":{"mask":[0,1],"count":3,"split":[{"mask":[0],"count":1},{"mask":[1],`+
			`"count":2}]}}}}}`)
}

// plain is roundTrip for values that are written as fmt does.
func plain[T comparable](f *testing.F, parse func(string) (T, []Warning, error), seeds ...string) {
	f.Helper()
	for _, s := range append(seeds, "", "0", "-1", " ") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, _, err := parse(text)
		if err != nil {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Value != text || len(e.Error()) > 1000 {
				t.Fatalf("parse %q: error %#v does not say what was read, or all of it", text, err)
			}
			return
		}
		if again, warnings, err := parse(fmt.Sprint(v)); err != nil || len(warnings) != 0 || again != v {
			t.Fatalf("%q was read as %v, which reads as %v with %v, %v", text, v, again, warnings, err)
		}
	})
}

func FuzzMode(f *testing.F) { plain(f, ParseMode, "follow") }

func FuzzGangName(f *testing.F) { plain(f, ParseGangName, "job-1.a_B", "a,b", "a/b") }

func FuzzMembers(f *testing.F) { plain(f, ParseMembers, "1", "+3", "007", "2147483648", "1e3") }

func FuzzGangInterrupted(f *testing.F) { plain(f, ParseGangInterrupted, "Evict", "keep") }

func FuzzIsolation(f *testing.F) { plain(f, ParseIsolation, "Prefer", "require", "avoid", "") }

func FuzzGangMode(f *testing.F) { plain(f, ParseGangMode, "Strict", "nonstrict") }

func FuzzMatchPolicy(f *testing.F) { plain(f, ParseMatchPolicy, "once-satisfied", "Only-Waiting") }

func FuzzWaitingTime(f *testing.F) {
	plain(f, ParseWaitingTime, "600s", "72h", "-1h", "1d", "2562048h")
}

func FuzzGangGroups(f *testing.F) {
	roundTrip(f, ParseGangGroups, `["a/b","c/D_e"]`, `["a/b","a/b"]`, `["a"]`)
}

func FuzzNetworkTopologySpec(f *testing.F) {
	roundTrip(f, ParseNetworkTopologySpec,
		`{"gatherStrategy":[{"layer":"a","strategy":"mustgather","podCountMultiple":4}]}`,
		`{"gatherStrategy":[{"layer":"a","strategy":"PreferGather"},{"layer":"a","strategy":"x"}]}`)
}

func FuzzReport(f *testing.F) { roundTrip(f, ParseReport, `{"gen":1}`) }

func FuzzSimulate(f *testing.F) {
	roundTrip(f, ParseSimulate, `{"runFor":"5s","exitCode":1}`,
		`{"cpu":"500m","memory":"1Gi","pattern":"sine"}`)
}

func FuzzNodeLabels(f *testing.F) {
	f.Add("FullPCPUs", "none", "MOSTALLOCATED")
	f.Fuzz(func(t *testing.T, bind, topology, strategy string) {
		labels, _ := ParseNodeLabels(map[string]string{
			NodeCPUBindPolicy: bind, NodeNUMATopologyPolicyAlias: topology,
			NodeNUMAAllocateStrategy: strategy,
		})
		again, issues := ParseNodeLabels(map[string]string{
			NodeCPUBindPolicy:      labels.CPUBind,
			NodeNUMATopologyPolicy: labels.NUMATopology, NodeNUMAAllocateStrategy: labels.NUMAAllocate,
		})
		if len(issues) != 0 || (again != labels && labels.CPUBind != "") {
			t.Fatalf("%q, %q, %q were read as %+v, which reads as %+v with %v", bind, topology, strategy, labels, again,
				issues)
		}
	})
}

func FuzzExtendedResourceSpec(f *testing.F) {
	roundTrip(f, ParseExtendedResourceSpec, `{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"500"}}}}`,
		`{"containers":{"a":{"limits":{"kubernetes.io/batch-memory":-1}}}}`)
}

func FuzzRawAllocatable(f *testing.F) {
	roundTrip(f, ParseRawAllocatable, `{"cpu":"10","memory":"16Gi"}`, `{"cpu":"-1"}`, `{"cpu":"NaN"}`)
}
