//go:build linux

package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a kubelet calls its labels and annotations of CRI objects.
const (
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

const (
	quotaPeriod = 100_000 // microseconds
	minQuota    = 1_000
	minShares   = 2
)

// class returns the QoS class that a kubelet gives to a pod.
func class(pod *corev1.Pod) corev1.PodQOSClass {
	guaranteed, asked := true, false
	for _, c := range podContainers(pod) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			request, limit := c.Resources.Requests[name], c.Resources.Limits[name]
			asked = asked || !request.IsZero() || !limit.IsZero()
			if limit.IsZero() || !request.IsZero() && request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !asked:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// podContainers are those that count for a pod's class.
func podContainers(pod *corev1.Pod) []corev1.Container {
	return append(append([]corev1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...)
}

// PodGroup is the cgroup that a kubelet with the cgroupfs driver makes for a pod.
func (s *Stage) PodGroup(pod *corev1.Pod) string {
	parent := path.Join(s.group, "kubepods")
	switch class(pod) {
	case corev1.PodQOSBestEffort:
		parent = path.Join(parent, "besteffort")
	case corev1.PodQOSBurstable:
		parent = path.Join(parent, "burstable")
	}
	return path.Join(parent, "pod"+string(pod.UID))
}

// makePodGroup makes a pod's cgroup with the CPU settings that a kubelet gives it.
func (s *Stage) makePodGroup(pod *corev1.Pod) error {
	group := s.PodGroup(pod)
	if err := s.hierarchies.Make(group); err != nil {
		return err
	}
	milli, limited := int64(0), true
	quota := int64(0)
	for _, c := range pod.Spec.Containers {
		request, limit := c.Resources.Requests.Cpu().MilliValue(), c.Resources.Limits.Cpu().MilliValue()
		if request == 0 {
			request = limit
		}
		milli += request
		quota += limit
		limited = limited && limit > 0
	}
	if err := s.setShares(group, sharesOf(milli)); err != nil {
		return err
	}
	if !limited || quota == 0 {
		return nil
	}
	return s.setQuota(group, quotaOf(quota))
}

func (s *Stage) setShares(group string, shares int64) error {
	if !s.hierarchies.Unified() {
		return s.write(group, "cpu.shares", strconv.FormatInt(shares, 10))
	}
	return s.write(group, "cpu.weight", strconv.FormatInt(1+(shares-2)*9999/262142, 10))
}

func (s *Stage) setQuota(group string, quota int64) error {
	if s.hierarchies.Unified() {
		return s.write(group, "cpu.max", fmt.Sprintf("%d %d", quota, quotaPeriod))
	}
	return errors.Join(
		s.write(group, "cpu.cfs_period_us", strconv.Itoa(quotaPeriod)),
		s.write(group, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)))
}

// write is skipped where the machine's kernel has no such control.
func (s *Stage) write(group, file, value string) error {
	err := s.hierarchies.Write(group, file, value)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func sharesOf(milliCPU int64) int64 { return max(minShares, milliCPU*1024/1000) }

func quotaOf(milliCPU int64) int64 { return max(minQuota, milliCPU*quotaPeriod/1000) }

// specOf finds a container of a pod by its name.
func specOf(pod *corev1.Pod, name string) (*corev1.Container, error) {
	for _, c := range podContainers(pod) {
		if c.Name == name {
			return &c, nil
		}
	}
	for _, e := range pod.Spec.EphemeralContainers {
		if e.Name == name {
			c := corev1.Container(e.EphemeralContainerCommon)
			return &c, nil
		}
	}
	return nil, fmt.Errorf("pod %s has no container %q", pod.Name, name)
}

func sandboxConfig(s *Stage, pod *corev1.Pod, group string) *runtimeapi.PodSandboxConfig {
	network, hostname := runtimeapi.NamespaceMode_POD, pod.Name
	if pod.Spec.HostNetwork {
		network, hostname = runtimeapi.NamespaceMode_NODE, ""
	}
	labels := map[string]string{}
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[labelPod], labels[labelNamespace], labels[labelUID] = pod.Name, pod.Namespace, string(pod.UID)
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Hostname:     hostname,
		LogDirectory: s.Path("pods", pod.Namespace+"_"+pod.Name+"_"+string(pod.UID)),
		Labels:       labels,
		Annotations:  pod.Annotations,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: group,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Network: network,
					Pid:     runtimeapi.NamespaceMode_CONTAINER,
				},
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			},
		},
	}
}

func containerConfig(pod *corev1.Pod, c *corev1.Container) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name},
		Image:    &runtimeapi.ImageSpec{Image: c.Image},
		Command:  c.Command,
		Args:     c.Args,
		LogPath:  path.Join(c.Name, "0.log"),
		Labels: map[string]string{
			labelPod: pod.Name, labelNamespace: pod.Namespace, labelUID: string(pod.UID), labelContainer: c.Name,
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: Resources(c.Resources),
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			},
		},
	}
	if pod.Spec.HostNetwork {
		config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}
	if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
		config.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: *c.SecurityContext.RunAsUser}
	}
	for _, e := range c.Env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return config
}

// Resources are the requests and limits of a container as a kubelet hands them to a runtime.
func Resources(r corev1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	request, limit := r.Requests.Cpu().MilliValue(), r.Limits.Cpu().MilliValue()
	if request == 0 {
		request = limit
	}
	out := &runtimeapi.LinuxContainerResources{
		CpuShares: sharesOf(request), CpuPeriod: quotaPeriod, MemoryLimitInBytes: r.Limits.Memory().Value(),
	}
	if limit > 0 {
		out.CpuQuota = quotaOf(limit)
	}
	return out
}

// readLog returns the lines of a container's log. The runtime puts time, stream and a mark before each.
func readLog(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if part := strings.SplitN(line, " ", 4); len(part) == 4 {
			lines = append(lines, part[3])
		}
	}
	return lines, nil
}
