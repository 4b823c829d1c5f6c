package deviceshare

import (
	"strconv"

	"k8s.io/component-base/metrics"

	"github.com/tenon-project/tenon/internal/core/device"
	"github.com/tenon-project/tenon/internal/kube"
)

// gauges export the accounts of devices as they are at each scrape.
type gauges struct {
	metrics.BaseStableCollector
	store                                    *kube.Store
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
			"Amounts that pods may still have of the devices of a node, by type and resource. Devices that are not "+
				"healthy have nothing.", labels, nil, metrics.ALPHA, ""),
		used: metrics.NewDesc("tenon_device_used",
			"Amounts that pods have of the devices of a node, by type and resource.", labels, nil, metrics.ALPHA, ""),
		fit: metrics.NewDesc("tenon_device_fit_nodes",
			"Nodes whose devices have room for one more pod of so many whole GPUs (k: 1, 2, 4, 8), by model.",
			[]string{"model", "k"}, nil, metrics.ALPHA, ""),
		fragmented: metrics.NewDesc("tenon_device_fragmentation_milli",
			"Thousandths of GPUs that are free and that an expected pod cannot use, summed over nodes, by model.",
			[]string{"model"}, nil, metrics.ALPHA, ""),
		idle: metrics.NewDesc("tenon_device_stranded_gpus",
			"GPUs with something free that no pod can use, by model and cause: unhealthy, kubelet, cordon, cpu, "+
				"memory, partition, share.", []string{"model", "cause"}, nil, metrics.ALPHA, ""),
	}
	if p != nil {
		g.survey = p.survey
	}
	return g
}

func (g *gauges) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{g.total, g.free, g.used, g.fit, g.fragmented, g.idle} {
		ch <- d
	}
}

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
		sums, model := map[device.Type]*[3]device.Vector{}, ""
		for d := range v.Devices().Devices() {
			s := sums[d.Type]
			if s == nil {
				s = &[3]device.Vector{}
				sums[d.Type] = s
			}
			for dim := range d.Total {
				if d.Offered && (!d.MemoryUnknown || device.Dim(dim) != device.Bytes) {
					s[0][dim] += d.Total[dim]
					s[1][dim] += d.Free[dim]
					s[2][dim] += d.Used[dim]
				}
			}
			if d.Type == device.GPU {
				model = d.Model
			}
		}
		for t, s := range sums {
			free, used := s[1].Amounts(t, 0), s[2].Amounts(t, 0)
			for resource, n := range s[0].Amounts(t, 0) {
				send(g.total, n, node, string(t), resource)
				send(g.free, free[resource], node, string(t), resource)
				send(g.used, used[resource], node, string(t), resource)
			}
		}
		if sums[device.GPU] == nil {
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
