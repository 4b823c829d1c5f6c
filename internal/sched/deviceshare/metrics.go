package deviceshare

import (
	"strconv"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
)

// gauges export the accounts of devices as they are at each scrape. Nothing is counted between scrapes.
type gauges struct {
	metrics.BaseStableCollector
	// store has the accounts of all nodes.
	store *kube.Store
	// survey says what is fragmented. nil in a scheduler without the plugin, which then exports no fragmentation.
	survey                                   *survey
	total, free, used, fit, fragmented, idle *metrics.Desc
}

// NewGauges returns the gauges of what devices have, of the nodes that could take whole GPUs, and of what the Survey of
// p says is fragmented; p may be nil.
func NewGauges(store *kube.Store, p *Plugin) metrics.StableCollector {
	labels := []string{"node", "type", "resource"}
	g := &gauges{
		store: store,
		total: metrics.NewDesc("tenon_device_total",
			"Amounts of the devices of a node, in percent or bytes, by type and resource.",
			labels, nil, metrics.ALPHA, ""),
		free: metrics.NewDesc("tenon_device_free",
			"Free amounts of the devices of a node, by type and resource. Unhealthy devices have none.", labels, nil,
			metrics.ALPHA, ""),
		used: metrics.NewDesc("tenon_device_used",
			"Amounts of the devices of a node that pods hold, by type and resource.", labels, nil, metrics.ALPHA, ""),
		fit: metrics.NewDesc("tenon_device_fit_nodes",
			"Nodes whose devices have room for one more pod of k whole GPUs (1, 2, 4 or 8), by model.",
			[]string{"model", "k"}, nil, metrics.ALPHA, ""),
		fragmented: metrics.NewDesc("tenon_device_fragmentation_milli",
			"Free thousandths of GPUs that an expected pod cannot use, summed over nodes, by model.",
			[]string{"model"}, nil, metrics.ALPHA, ""),
		idle: metrics.NewDesc("tenon_device_stranded_gpus",
			"GPUs with a free part that no pod can use, by model and cause: unhealthy, kubelet, cordon, cpu, memory, "+
				"partition, numa, pods, share.", []string{"model", "cause"}, nil, metrics.ALPHA, ""),
	}
	if p != nil {
		g.survey = p.survey
	}
	return g
}

// DescribeWithStability describes all gauges.
func (g *gauges) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{g.total, g.free, g.used, g.fit, g.fragmented, g.idle} {
		ch <- d
	}
}

// CollectWithStability reads the accounts of all nodes at this scrape.
func (g *gauges) CollectWithStability(ch chan<- metrics.Metric) {
	send := func(d *metrics.Desc, n int64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, float64(n), labels...)
	}
	for _, m := range byModel(g.survey.nodes()) {
		send(g.fragmented, m.Lost, m.Model)
		for _, s := range m.Stranded {
			send(g.idle, int64(s.GPUs), m.Model, s.Cause)
		}
	}
	type size struct {
		model string
		k     int64
	}
	fits := map[size]int64{}
	for _, node := range g.store.Nodes() {
		v := g.store.Known(node)
		if v == nil || v.Devices() == nil {
			continue
		}
		type amount struct {
			kind     device.Type
			resource string
		}
		sums, model, gpus := map[amount][3]int64{}, "", false
		for d := range v.Devices().Devices() {
			if d.Type == device.GPU {
				model, gpus = d.Model, true
			}
			total, used, free := d.Amounts()
			for resource, n := range total {
				if key := (amount{d.Type, resource}); d.Offered && resource != device.GPURatio {
					s := sums[key]
					sums[key] = [3]int64{s[0] + n, s[1] + free[resource], s[2] + used[resource]}
				}
			}
		}
		for key, s := range sums {
			for i, desc := range [...]*metrics.Desc{g.total, g.free, g.used} {
				send(desc, s[i], node, string(key.kind), key.resource)
			}
		}
		if !gpus {
			continue
		}
		for _, k := range []int64{1, 2, 4, 8} {
			r := &device.Request{Parts: []device.Part{{Type: device.GPU, Count: k, Need: device.Need{Whole: true}}}}
			if fits[size{model, k}] += 0; v.Facts().OwnDevices && v.Devices().Fits(r, &device.Options{}).OK() {
				fits[size{model, k}]++
			}
		}
	}
	for s, n := range fits {
		send(g.fit, n, s.model, strconv.FormatInt(s.k, 10))
	}
}
