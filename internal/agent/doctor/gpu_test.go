package doctor

import (
	"maps"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/internal/view"
)

// toolkitSpec is a specification of NVIDIA's container toolkit, without the libraries that it mounts.
const toolkitSpec = `
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}], env: [NVIDIA_VISIBLE_DEVICES=void]}
devices:
- {name: "0", containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: GPU-a, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
`

// stockNode is a node as a driver, a container toolkit and a device plugin leave it, with the reporter of NVIDIA's
// cards.
func stockNode() map[string]string {
	files := withGPU()
	maps.Copy(files, map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release " +
			"Build\nGCC version: 12.2.0\n",
		"var/run/tenon/device-infos/gpus.json": `[{"uuid":"GPU-a","computeMode":"Default",` +
			`"resources":{"gpu-memory":"16Gi"}}]`,
		"usr/bin/nvidia-ctk":     "",
		"run/cdi/nvidia.yaml":    toolkitSpec,
		"run/cdi/README":         "not a specification",
		"etc/cdi/other.json":     `{"kind": "example.com/nic", "devices": [{"name": "GPU-b"}]}`,
		"proc/95/cmdline":        "nvidia-device-plugin\x00",
		"proc/devices":           "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
		"dev/nvidia-caps/README": "",
		"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": `{"Data":{"RegisteredDevices":` +
			`{"nvidia.com/gpu":["GPU-a"],"tenon.sh/presence":["tenon-0"]}}}`,
		"var/lib/tenon-agent/device.json": `{"mode":"Follow","types":["gpu"]}`,
	})
	return files
}

func layGPUs(t *testing.T, files map[string]string) host.Root {
	t.Helper()
	root := lay(t, files)
	withFiles(t, root, "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
	return root
}

func TestTheGPUsOfAStockNode(t *testing.T) {
	t.Parallel()
	d := view.NewDiagnosis("GPUs of machine /", GPUs(answers(layGPUs(t, stockNode()), "2.4.2")))
	var b strings.Builder
	testkit.Check(t, d.Print(&b, 0))
	golden(t, "gpu.txt", b.String())
}

func TestTheGPUsOfAMachine(t *testing.T) {
	t.Parallel()
	const drop = "var/run/tenon/device-infos/gpus.json"
	const instance = "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
	for name, c := range map[string]struct {
		check  string
		change map[string]string // "-" removes a file
		status Status
		found  string
		remedy string
	}{
		"a driver that does not say its version": {
			"driver",
			map[string]string{"proc/driver/nvidia/version": "-"},
			OK, "1 nvidia, driver of an unknown version", "",
		},
		"the driver before the open modules": {
			"driver", map[string]string{
				"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May\n",
			}, OK, "1 nvidia, driver 470.256.02", "",
		},
		"no driver": {
			"driver", map[string]string{
				"proc/driver/nvidia/gpus/0000:3b:00.0/information": "-",
			}, Warn, "an NVIDIA GPU without its driver", "modprobe nvidia",
		},
		"no reporter": {
			"compute-mode", map[string]string{drop: `[{"uuid":"GPU-a"}]`}, Unknown, "no file says it", "",
		},
		"a card for one program": {
			"compute-mode",
			map[string]string{drop: `[{"uuid":"GPU-a","computeMode":"Exclusive_Process"}]`},
			Fail, "GPU-a is in Exclusive_Process", "nvidia-smi -c DEFAULT",
		},
		"a card for the programs of its daemon": {
			"compute-mode", map[string]string{
				drop:              `[{"uuid":"GPU-a","computeMode":"Exclusive_Process"}]`,
				"proc/99/cmdline": "nvidia-cuda-mps-control\x00-d\x00",
			}, Warn, "GPU-a is in Exclusive_Process", "keep it",
		},
		"slices that no program reports": {
			"mig",
			map[string]string{instance: "DeviceFileMinor: 12\n"},
			Warn, "1 GPU instances, 0 MIG devices are reported", "nvidia.enabled=true",
		},
		"slices": {
			"mig", map[string]string{
				instance: "DeviceFileMinor: 12\n",
				drop:     `[{"uuid":"GPU-a"},{"uuid":"MIG-b","labels":{"node.tenon.sh/parent":"GPU-a"}}]`,
			}, OK, "1 GPU instances, 1 MIG devices are reported", "",
		},
		"a card that no pod can use": {
			"mig",
			map[string]string{drop: `[{"uuid":"GPU-a","status":{"healthy":false,"errCode":"NoMIGDevice"}}]`},
			Warn, "GPU-a is in MIG mode without a MIG device", "nvidia-smi -mig 0",
		},
		"a daemon": {
			"mps",
			map[string]string{"proc/99/cmdline": "/usr/bin/nvidia-cuda-mps-control\x00-d\x00"},
			Warn, "its pipes elsewhere than in /run/tenon/mps/pipe", "docs/guide/nvidia.md",
		},
		"a daemon for pods of Tenon": {
			"mps", map[string]string{
				"proc/99/cmdline": "/usr/bin/nvidia-cuda-mps-control\x00-d\x00",
				"var/run/tenon/mps/pipe/nvidia-cuda-mps-control.pid": "99",
			}, Warn, "with its pipes in /run/tenon/mps/pipe", "quit",
		},
		"no toolkit": {
			"toolkit", map[string]string{"usr/bin/nvidia-ctk": "-"}, Warn, "is not there", "nvidia-container-toolkit",
		},
		"the toolkit of the GPU Operator": {
			"toolkit",
			map[string]string{"usr/bin/nvidia-ctk": "-", "usr/local/nvidia/toolkit/nvidia-cdi-hook": ""},
			OK, "NVIDIA's container toolkit", "",
		},
		"no specification of the toolkit": {
			"toolkit-cdi",
			map[string]string{"run/cdi/nvidia.yaml": "-"},
			Warn, "no specification", "nvidia-ctk cdi generate",
		},
		"a specification by number alone": {
			"toolkit-cdi",
			map[string]string{"run/cdi/nvidia.yaml": "kind: nvidia.com/gpu\ndevices: [{name: '0'}]\n"},
			Warn, "GPU-a is not in a specification of nvidia.com/gpu", "--device-name-strategy=uuid",
		},
		"a specification from before the machine was started": {
			"toolkit-cdi", map[string]string{
				"run/cdi/nvidia.yaml": strings.ReplaceAll(toolkitSpec, "nvidia0", "nvidia1"),
			}, Warn, "with the files of another card", "again when cards change",
		},
		"two specifications of a card": {
			"toolkit-cdi",
			map[string]string{"etc/cdi/nvidia.yaml": toolkitSpec},
			Warn, "run/cdi/nvidia.yaml: nvidia.com/gpu=0 is in etc/cdi/nvidia.yaml already", "nvidia-ctk",
		},
		"a specification that cannot be read": {
			"toolkit-cdi",
			map[string]string{"etc/cdi/nvidia.yaml": "kind: ["},
			Warn, "etc/cdi/nvidia.yaml: ", "nvidia-ctk",
		},
		"a specification of the administrator": {
			"toolkit-cdi", map[string]string{
				"run/cdi/nvidia.yaml": "-",
				"etc/cdi/nvidia.json": `{"kind":"nvidia.com/gpu","devices":[{"name":"GPU-a","containerEdits":` +
					`{"deviceNodes":[{"path":"/dev/nvidia0"}]}}]}`,
			}, OK, "1 device of nvidia.com/gpu", "",
		},
		"libraries that the specification brings": {
			"device-runtime",
			map[string]string{"run/cdi/tenon.sh-gpu.yaml": "-"},
			OK, "the default handler is runc", "",
		},
		"no specification that brings libraries": {
			"device-runtime",
			map[string]string{"run/cdi/tenon.sh-gpu.yaml": "-", "run/cdi/nvidia.yaml": "-"},
			Warn, "the default handler is runc", "nvidia-ctk cdi generate",
		},
		"a plugin that shares cards": {
			"device-plugin", map[string]string{
				"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": `{"Data":{"RegisteredDevices":` +
					`{"nvidia.com/gpu":["GPU-a::0","GPU-a::1"]}}}`,
			}, Warn, "2 nvidia.com/gpu", "mode Follow",
		},
		"the agent's plugin alone": {
			"device-plugin", map[string]string{
				"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": `{"Data":{"RegisteredDevices":` +
					`{"nvidia.com/gpu":["tenon-0"]}}}`,
			}, OK, "none allocates NVIDIA's cards", "",
		},
		"NRI is off": {
			"nri", map[string]string{
				"etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n",
			}, Fail, "off", "disable = false",
		},
	} {
		files := stockNode()
		for file, text := range c.change {
			if files[file] = text; text == "-" {
				delete(files, file)
			}
		}
		var got []Finding
		for _, f := range GPUs(answers(layGPUs(t, files), "2.4.2")) {
			if f.Check == c.check {
				got = append(got, f)
			}
		}
		if len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Found, c.found) ||
			!strings.Contains(got[0].Remedy, c.remedy) || (got[0].Remedy == "") != (c.remedy == "") {
			t.Errorf("%s: got %+v, want %s %q with %q to do", name, got, c.status, c.found, c.remedy)
		}
	}
	d := view.NewDiagnosis("", GPUs(answers(lay(t, good()), "2.4.2")))
	if len(d.Findings) != 1 || d.Findings[0].Status != Unknown || !d.Healthy() {
		t.Errorf("a machine without cards: %+v", d.Findings)
	}
}
