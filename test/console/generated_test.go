package console

import (
	"fmt"
	"strings"
	"time"
)

// longName has the most characters that a label of DNS may have.
var longName = strings.Repeat("long-name-", 7)[:63]

const markupName = `<b onclick="x()">&amp;"bold"</b>`

// generated are the answers of a large cluster: 1,000 nodes, 44 quotas in 4 levels, 300 pods that wait, gangs of 64,
// and names that are long, that contain markup, and in other scripts.
func generated(at time.Time) map[string]any {
	answers := map[string]any{}
	generateNodes(answers)
	generateQuotas(answers)
	generateWaiting(answers, at)
	generateDecisions(answers, at)
	generateMachine(answers)
	generateOperations(answers, at)
	answers["past"] = generatedPast(at)
	return answers
}

// findings are what is wrong with some nodes of each 97.
var findings = map[int][2]string{3: {"notReady", "NotReady"}, 5: {"agent", "agent silent"}, 9: {"cordon", "cordoned"}}

func generateNodes(answers map[string]any) {
	var nodes, uses, gpus []any
	for i := range 1000 {
		name := fmt.Sprintf("%s-%04d", []string{"epyc-2s", "hgx-h100", "arm64-1s", "l40s"}[i%4], i)
		if i == 7 {
			name = longName
		}
		lsr, ls := (i*7)%60, (i*13)%50
		n := map[string]any{
			"node": name, "allocatable": "128", "requested": fmt.Sprint(lsr + ls + i%5), "pods": i % 40, "lse": i % 5,
			"lsr": lsr, "kubelet": 0, "ls": fmt.Sprint(ls), "be": fmt.Sprint(i % 30), "sharedPool": 128 - lsr,
			"free": 128 - lsr, "largestFit": 100 - lsr, "largestOnOneNUMANode": min(32, 100-lsr),
			"fragmentedPercent": 25 * (i % 4), "gangs": map[string]int{fmt.Sprintf("ml/train-%d", i%3): 2},
			"quotas": map[string]string{fmt.Sprintf("team-%d", i%9): fmt.Sprint(1 + i%5)},
		}
		if f, found := findings[i%97]; found {
			finding := map[string]any{"cause": f[0], "text": f[1]}
			n["health"] = map[string]any{"closed": f[0], "findings": []any{finding}}
			n["stranded"] = fmt.Sprint(128 - lsr - ls - i%5)
		}
		nodes = append(nodes, n)
		uses = append(uses, map[string]any{
			"node": name, "reportSeconds": i % 30,
			"cpu": map[string]any{
				"allocatable": "128", "requested": n["requested"], "used": fmt.Sprint((i * 3) % 100),
				"usedPercent": (i * 3) % 100,
			},
			"memory": map[string]any{
				"allocatable": "512Gi", "requested": fmt.Sprintf("%dGi", i%500),
				"used": fmt.Sprintf("%dMi", i*300), "usedPercent": i % 100,
			},
		})
		if i%4 == 1 {
			whole := i % 7
			gpus = append(gpus, map[string]any{
				"node": name, "mode": "Own", "model": "nvidia-H100", "isolation": "none", "gpus": 8,
				"usedPercent": whole*100 + 50, "free": 7 - whole, "inParts": 1, "shared": 1,
				"fit":        map[string]int{"1": 7 - whole, "2": (7 - whole) / 2, "4": (7 - whole) / 4, "8": 0},
				"stranded":   []any{},
				"namespaces": []any{map[string]any{"namespace": "ml", "usedPercent": whole*100 + 50}},
			})
		}
	}
	answers["nodes"], answers["use"], answers["gpus"] = list(nodes...), list(uses...), list(gpus...)
}

// generateQuotas makes a tree: 3 companies, 8 departments, 12 groups and 20 teams below a root.
func generateQuotas(answers map[string]any) {
	amounts := func(n int) map[string]string {
		return map[string]string{"cpu": fmt.Sprint(n), "memory": fmt.Sprintf("%dGi", 4*n)}
	}
	quota := func(name, parent string, least, most, runtime, used int) any {
		round := map[string]any{"pool": 1000, "weights": 100, "got": 1000 * max(0, runtime-least), "returned": 0}
		return map[string]any{
			"name": name, "parentName": parent, "max": amounts(most), "min": amounts(least),
			"runtime": amounts(runtime),
			"used":    amounts(used), "request": amounts(used + 5), "sharedWeight": amounts(most),
			"lent": amounts(max(0, least-runtime)), "borrowed": amounts(max(0, runtime-least)),
			"path": []string{parent, name}, "trace": map[string]any{"cpu": map[string]any{
				"total": 1000 * runtime, "limited": 1000 * (used + 5), "base": 1000 * min(least, used), "pool": 1000,
				"rounds": []any{round},
			}},
		}
	}
	quotas := []any{quota("koordinator-root-quota", "", 4000, 4000, 4000, 2100)}
	for i := range 3 {
		name := fmt.Sprintf("company-%d", i)
		quotas = append(quotas, quota(name, "koordinator-root-quota", 1000, 2000, 1100+100*i, 700))
	}
	for i := range 8 {
		name, parent := fmt.Sprintf("department-%d", i), fmt.Sprintf("company-%d", i%3)
		quotas = append(quotas, quota(name, parent, 300, 600, 320-40*(i%3), 250))
	}
	for i := range 12 {
		name := fmt.Sprintf("group-%d", i)
		if i == 4 {
			name = "研究部-深度学习"
		}
		quotas = append(quotas, quota(name, fmt.Sprintf("department-%d", i%8), 100, 240, 130-20*(i%4), 90))
	}
	for i := range 20 {
		name := fmt.Sprintf("team-%d", i)
		if i == 11 {
			name = longName
		}
		quotas = append(quotas, quota(name, fmt.Sprintf("group-%d", i%4), 40, 90, 60-10*(i%4), 30))
	}
	answers["quotas"] = list(quotas...)
}

func generateWaiting(answers map[string]any, at time.Time) {
	var groups, gangs []any
	pod := 0
	counts := []int{75, 60, 52, 40, 30, 20, 10, 6, 4, 3}
	for i, code := range []string{
		"InsufficientExclusiveCPU", "NodeAffinity", "GangSiblingFailed", "SMTAlignment", "GangNotReady",
		"QuotaPoolUsed",
		"InsufficientCPU", "InsufficientDevices", "TaintToleration", "SomeOtherReason",
	} {
		var pods []string
		for range counts[i] {
			name := fmt.Sprintf("ml/infer-%03d", pod)
			switch pod {
			case 10:
				name = "ml/" + longName
			case 20:
				name = "团队/推理-服务"
			case 30:
				name = "ml/" + markupName
			}
			pods, pod = append(pods, name), pod+1
		}
		groups = append(groups, map[string]any{
			"rootCause": code, "class": "Placement", "count": len(pods), "pods": pods, "example": pods[0],
			"oldest":  at.Add(-time.Duration(10*i+3) * time.Minute),
			"message": "0/1000 nodes are available: 1000 " + code + ".",
		})
	}
	for i := range 12 {
		name := fmt.Sprintf("ml/train-%d", i)
		if i == 3 {
			name = "ml/" + longName
		}
		g := map[string]any{
			"name": name, "createTime": at.Add(-time.Duration(17*i+4) * time.Minute), "mode": "Strict",
			"gangMatchPolicy": "once-satisfied", "minRequiredNumber": 64, "gangGroup": []string{name},
			"scheduleCycle": 3, "state": "Bound",
		}
		states := map[string][]string{"boundChildren": {}, "waitingForBindChildren": {}, "pendingChildren": {}}
		var all []string
		for m := range 64 - i%5 {
			state := "boundChildren"
			if i%3 != 0 {
				g["state"], g["message"] = "Waiting", "gang "+name+" waits for members"
				state = []string{"pendingChildren", "waitingForBindChildren"}[m%2]
			}
			member := fmt.Sprintf("%s-%02d", name, m)
			states[state], all = append(states[state], member), append(all, member)
		}
		g["children"] = all
		for state, pods := range states {
			g[state] = pods
		}
		gangs = append(gangs, g)
	}
	answers["pod/ml/train-4-00"] = map[string]any{
		"pod": "ml/train-4-00", "state": "Pending", "data": map[string]any{"source": "the scheduler"},
		"expected": map[string]any{
			"state": "Expected", "earliest": at.Add(time.Hour), "after": []string{"ml/train-3"},
		},
	}
	answers["pending"], answers["gangs"], answers["gangs/ml"] = list(groups...), list(gangs...), list(gangs...)
}

func generateDecisions(answers map[string]any, at time.Time) {
	var decisions, evicted []any
	for i := range 256 {
		decisions = append(decisions, map[string]any{
			"pod": fmt.Sprintf("ml/web-%03d", i), "time": at.Add(-time.Duration(i*i/20) * time.Second),
			"node": fmt.Sprintf("epyc-2s-%04d", 4*i%1000), "feasible": 1000 - i, "of": 1000, "scores": nil,
		})
	}
	for i := range 12 {
		evicted = append(evicted, map[string]any{
			"pod": fmt.Sprintf("ml/etl-%d", i), "time": at.Add(-time.Duration(4*i) * time.Minute),
			"by": []string{"preemption", "quota", "taint"}[i%3], "why": "for ml/infer-000",
		})
	}
	answers["decisions"], answers["evicted"] = list(decisions...), list(evicted...)
	warning := map[string]any{"check": "nodes", "status": "warn", "found": "new pods can use 968 of 1000 nodes"}
	component := map[string]any{"name": "tenon-scheduler", "desired": 2, "ready": 2, "versions": []string{"v1"}}
	answers["status"] = map[string]any{
		"subject": "Tenon", "findings": []any{warning}, "components": []any{component},
		"reports": []any{map[string]any{"kind": "topology", "nodes": 990, "of": 1000}},
	}
}

// generateMachine makes the page of a node of 2 sockets, 8 NUMA nodes, 256 CPUs and 8 GPUs, and that of a pod on it.
func generateMachine(answers map[string]any) {
	names := []string{"ml/web-000", "ml/" + longName, "ml/" + markupName, "团队/推理-服务"}
	var pods, sockets, devices []any
	for i, name := range names {
		namespace, short, _ := strings.Cut(name, "/")
		pods = append(pods, map[string]any{
			"namespace": namespace, "name": short, "qos": []string{"LSE", "LSR"}[i%2],
			"cpuset": fmt.Sprintf("%d-%d,%d-%d", 16*i, 16*i+7, 128+16*i, 128+16*i+7),
		})
	}
	for s := range 2 {
		var nodes []any
		for n := 4 * s; n < 4*s+4; n++ {
			var cores []any
			for c := 16 * n; c < 16*n+16; c++ {
				cpu := func(id int) any {
					state, pods := "free", []string{}
					if n < len(names) && c%16 < 8 {
						state, pods = []string{"lse", "lsr"}[n%2], names[n:n+1]
					}
					return map[string]any{"cpu": id, "state": state, "pods": pods, "usedPercent": id % 101}
				}
				cores = append(cores, map[string]any{"core": c, "l3": c / 8, "cpus": []any{cpu(c), cpu(c + 128)}})
			}
			nodes = append(nodes, map[string]any{
				"node": n, "memoryAllocatable": "96Gi", "memoryFree": fmt.Sprintf("%dGi", 96-11*n),
				"distances":  []int{10, 12},
				"sharedPool": fmt.Sprintf("%d-%d", 16*n+8, 16*n+15), "beSharedPool": "", "free": 16, "cores": cores,
				"l3Use": []any{
					map[string]any{"l3": 2 * n, "usedPercent": 7}, map[string]any{"l3": 2*n + 1, "usedPercent": 100},
				},
			})
			gpu := map[string]any{
				"type": "gpu", "minor": n, "id": fmt.Sprint("GPU-", n), "model": "NVIDIA-H100-80GB-HBM3", "numaNode": n,
				"pcie":  fmt.Sprintf("pci0000:%02x", 16*n),
				"busID": fmt.Sprintf("0000:%02x:00.0", 16*n+1), "healthy": true,
				"usedPercent": 0, "total": map[string]string{"koordinator.sh/gpu-core": "100"},
				"free":    map[string]string{"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"},
				"holders": []any{},
			}
			if n < len(names) {
				gpu["usedPercent"], gpu["free"] = 40, map[string]string{"koordinator.sh/gpu-core": "60"}
				held := map[string]string{"koordinator.sh/gpu-core": "40"}
				gpu["holders"] = []any{map[string]any{"pod": names[n], "resources": held}}
			}
			devices = append(devices, gpu)
		}
		sockets = append(sockets, map[string]any{"socket": s, "numaNodes": nodes})
	}
	var links []any
	for a := range 8 {
		for b := a + 1; b < 8; b++ {
			links = append(links, map[string]any{
				"lanes": 18, "ids": []string{fmt.Sprint("GPU-", a), fmt.Sprint("GPU-", b)},
			})
		}
	}
	manager := map[string]any{"policy": "none"}
	answers["node/"+longName] = map[string]any{
		"node": longName, "arch": "amd64", "cpus": 256, "cores": 128, "threadsPerCore": 2, "numaNodes": 8,
		"kubeletPolicy": "none", "sharedPool": "8-15", "beSharedPool": "", "allocatable": "", "problems": []any{},
		"pods": pods, "sockets": sockets,
		"policies":   map[string]any{"numaAllocate": "MostAllocated", "numaTopology": "None"},
		"mode":       map[string]any{"mode": "Own", "from": map[string]any{"source": "assumed"}},
		"sharedPods": 31, "bePods": 7, "sharedMemory": "61Gi",
		"devices": map[string]any{"list": devices, "linkKind": "NVLink", "links": links},
		"kubelet": map[string]any{"cpuManager": manager, "memoryManager": manager, "topologyManager": manager},
	}
	for i, name := range names {
		cpuset := pods[i].(map[string]any)["cpuset"]
		value := map[string]any{"file": "cpuset.cpus", "want": cpuset, "got": cpuset, "state": "matches"}
		answers["pod/"+name] = map[string]any{
			"pod": name, "state": "Bound", "nodes": 1000, "asked": "16 CPU, 64Gi memory", "qos": "LSR",
			"obstacles": nil, "minimalSets": nil, "candidates": nil, "data": map[string]any{"source": "the scheduler"},
			"placement": map[string]any{"node": longName, "cpuset": cpuset, "numa": nil},
			"actual":    map[string]any{"groups": []any{map[string]any{"path": "/kubepods/x", "values": []any{value}}}},
		}
	}
}

// generateOperations makes what an operator looks at.
func generateOperations(answers map[string]any, at time.Time) {
	var jobs, kept, reservations, modes, settings []any
	for i := range 30 {
		pod := fmt.Sprintf("ml/etl-%d", i)
		jobs = append(jobs, map[string]any{
			"name": fmt.Sprint("job-", i), "pod": pod, "from": "epyc-2s-0000", "to": longName,
			"phase":      []string{"Succeeded", "Running", "Failed"}[i%3],
			"createTime": at.Add(-time.Duration(i) * time.Minute),
			"plugin":     "default/LowNodeUtilization", "reason": "the node is above its threshold of 70% of its memory",
		})
		reasons := []any{map[string]any{"code": "BarePod", "text": "no controller would make it again"}}
		kept = append(kept, map[string]any{"pod": pod, "node": longName, "reasons": reasons})
		reservations = append(reservations, map[string]any{
			"name": fmt.Sprint("reserve-", i), "phase": []string{"Available", "Pending"}[i%2], "node": longName,
			"createTime": at.Add(-time.Hour), "cpuset": "0-15", "devices": nil, "allocatePolicy": "Restricted",
			"allocatable": map[string]string{"cpu": "16", "memory": "64Gi"}, "allocateOnce": i%2 == 0,
			"allocated": map[string]string{"cpu": fmt.Sprint(i % 16), "memory": fmt.Sprintf("%dGi", i%64)},
			"left":      map[string]string{"cpu": fmt.Sprint(16 - i%16), "memory": fmt.Sprintf("%dGi", 64-i%64)},
			"owners":    []string{"app=" + longName}, "currentOwners": []string{"ml/" + markupName},
		})
		modes = append(modes, map[string]any{
			"node": fmt.Sprintf("epyc-2s-%04d", 4*i), "mode": []string{"Own", "Follow"}[i%2], "kubeletPolicy": "static",
			"from": map[string]any{"source": "assumed"},
		})
		settings = append(settings, map[string]any{
			"field": fmt.Sprint("profiles[0].pluginConfig.", longName, i), "value": "10", "origin": "config",
		})
	}
	answers["evictions"] = map[string]any{
		"jobs": jobs, "kept": kept, "movable": 12,
		"limits": []any{map[string]any{"code": "CapNode", "subject": longName, "have": 2, "limit": 3, "window": "1h"}},
		"round": map[string]any{"time": at, "accepted": 1, "refused": []any{map[string]any{
			"pod": "ml/etl-1", "node": longName, "plugin": "default/LowNodeUtilization",
			"wish": "move", "reasons": []any{},
		}}},
	}
	answers["reservations"], answers["modes"] = list(reservations...), list(modes...)
	answers["configuration"] = map[string]any{"settings": settings, "gates": []any{map[string]any{
		"name": "NominatedNodeNameForExpectation", "enabled": true, "default": false, "stage": "BETA", "origin": "flag",
	}}}
}

// generatedPast is an hour of 1,000 nodes: 4,000 pods. Of the first 3,500 one in five has ended.
func generatedPast(at time.Time) any {
	begin := at.Add(-time.Hour).UTC().Truncate(time.Millisecond)
	var nodes, pods, refused []any
	for i := range 1000 {
		nodes = append(nodes, map[string]any{
			"node":     fmt.Sprintf("%s-%04d", []string{"epyc-2s", "hgx-h100", "arm64-1s", "l40s"}[i%4], i),
			"milliCPU": 128000,
			"from":     begin,
		})
	}
	for i := range 4000 {
		from := begin.Add(time.Duration(i) * 800 * time.Millisecond)
		pod := map[string]any{
			"pod": fmt.Sprintf("ml/past-%d", i), "node": nodes[i*i%1000].(map[string]any)["node"], "from": from,
			"milliCPU": 1000 * (1 + i%16), "feasible": i % 1000, "of": 1000,
		}
		switch {
		case i%10 == 2:
			pod["gang"] = "ml/train-0"
		case i >= 3500:
		case i%10 == 0:
			pod["to"] = from.Add(time.Minute)
		case i%10 == 1:
			pod["to"], pod["why"] = from.Add(2*time.Minute), "PreemptionByScheduler"
		}
		pods = append(pods, pod)
		if i%40 == 0 {
			refused = append(refused, map[string]any{
				"pod": "ml/" + markupName, "time": from,
				"why": fmt.Sprintf("0/1000 nodes are available: %d Insufficient cpu.", i),
			})
		}
	}
	return map[string]any{
		"file": "journal-2.jsonl", "earlier": "journal-1.jsonl", "from": begin, "to": at.UTC(),
		"nodes": nodes, "pods": pods,
		"refused": refused,
	}
}
