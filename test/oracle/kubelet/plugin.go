package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devicePlugin is a device plugin in process. Where the device manager leaves a choice it prefers what the request
// says, so that a driver which has predicted a choice among equal devices sees that choice taken; then devices on low
// NUMA nodes, and those without topology last.
type devicePlugin struct {
	resource string
	stubborn bool             // it prefers the reverse of what it is asked to
	nodes    map[string][]int // NUMA nodes of a device, ascending
	prefer   []share
}

func (p *devicePlugin) API() pluginapi.DevicePluginClient { return p }
func (p *devicePlugin) Resource() string                  { return p.resource }
func (p *devicePlugin) SocketPath() string                { return "" }

func (p *devicePlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty,
	...grpc.CallOption,
) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *devicePlugin) ListAndWatch(context.Context, *pluginapi.Empty,
	...grpc.CallOption,
) (pluginapi.DevicePlugin_ListAndWatchClient, error) {
	panic("the device manager is fed directly")
}

func (p *devicePlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest,
	_ ...grpc.CallOption,
) (*pluginapi.PreferredAllocationResponse, error) {
	ask := r.ContainerRequests[0]
	chosen := slices.Clone(ask.MustIncludeDeviceIDs)
	wanted := map[string]int{}
	for _, s := range p.prefer {
		wanted[fmt.Sprint(s.Nodes)] += s.Count
	}
	if p.stubborn {
		clear(wanted)
	}
	for _, id := range chosen {
		wanted[fmt.Sprint(p.nodes[id])]--
	}
	free := slices.DeleteFunc(slices.Clone(ask.AvailableDeviceIDs),
		func(id string) bool { return slices.Contains(chosen, id) })
	slices.SortFunc(free, func(a, b string) int {
		return cmp.Or(byNodes(p.nodes[a], p.nodes[b]), cmp.Compare(a, b))
	})
	if p.stubborn {
		slices.Reverse(free)
	}
	var rest []string
	for _, id := range free {
		key := fmt.Sprint(p.nodes[id])
		if wanted[key] > 0 {
			wanted[key]--
			chosen = append(chosen, id)
		} else {
			rest = append(rest, id)
		}
	}
	chosen = append(chosen, rest...)
	if len(chosen) > int(ask.AllocationSize) {
		chosen = chosen[:ask.AllocationSize]
	}
	return &pluginapi.PreferredAllocationResponse{
		ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: chosen}},
	}, nil
}

func (p *devicePlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest,
	_ ...grpc.CallOption,
) (*pluginapi.AllocateResponse, error) {
	resp := &pluginapi.AllocateResponse{}
	for range r.ContainerRequests {
		resp.ContainerResponses = append(resp.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return resp, nil
}

func (p *devicePlugin) PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest,
	...grpc.CallOption,
) (*pluginapi.PreStartContainerResponse, error) {
	return &pluginapi.PreStartContainerResponse{}, nil
}

// byNodes orders sets of NUMA nodes as masks, the empty one last.
func byNodes(a, b []int) int {
	if len(a) == 0 || len(b) == 0 {
		return cmp.Compare(len(b), len(a))
	}
	for i, j := len(a)-1, len(b)-1; i >= 0 && j >= 0; i, j = i-1, j-1 {
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
	}
	return cmp.Compare(len(a), len(b))
}
