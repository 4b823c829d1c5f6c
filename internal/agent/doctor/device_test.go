package doctor

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenon-project/tenon/api/annotation"
	devicev1alpha1 "github.com/tenon-project/tenon/api/device/v1alpha1"
	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/testkit"
)

// withGPU is a machine with one GPU on which all is well but for the files of /dev, which withFiles makes.
func withGPU() map[string]string {
	files := good()
	maps.Copy(files, map[string]string{
		"proc/devices": "Character devices:\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
		"proc/driver/nvidia/gpus/0000:3b:00.0/information": "GPU UUID:\tGPU-a\nDevice Minor:\t0\n",
		"sys/bus/pci/devices/0000:3b:00.0/class":           "0x030200\n",
		"sys/bus/pci/devices/0000:3b:00.0/vendor":          "0x10de\n",
		"var/run/tenon/device-infos/gpus.json":             `[{"uuid":"GPU-a","resources":{"gpu-memory":"16Gi"}}]`,
		"run/cdi/tenon.sh-gpu.yaml":                        "kind: tenon.sh/gpu\ndevices: [{name: GPU-a}]\n",
		"var/lib/tenon-agent/device.json":                  `{"mode":"Own","types":["gpu"]}`,
	})
	return files
}

// withFiles makes character devices: links to one that every machine has.
func withFiles(t *testing.T, root host.Root, names ...string) {
	t.Helper()
	testkit.Check(t, os.MkdirAll(root.Path("dev"), 0o755))
	for _, name := range names {
		testkit.Check(t, os.Symlink("/dev/null", filepath.Join(root.Path("dev"), name)))
	}
}

func TestDevicesOfAMachine(t *testing.T) {
	t.Parallel()
	const containerd = "etc/containerd/config.toml"
	all := []string{"nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	for name, c := range map[string]struct {
		check  string
		change map[string]string // "-" removes a file
		files  []string          // of /dev; nil for all
		status Status
		found  string
		remedy string
	}{
		"all is well":                {"driver", nil, nil, OK, "1 nvidia", ""},
		"its device files are there": {"device-files", nil, nil, OK, "4 files of 1 card", ""},
		"its drop file":              {"drop-files", nil, nil, OK, "1 device", ""},
		"its specification":          {"device-cdi", nil, nil, OK, "1 device of tenon.sh/gpu", ""},
		"its mode":                   {"device-mode", nil, nil, OK, "Own", ""},
		"a GPU without driver": {
			"driver", map[string]string{
				"sys/bus/pci/devices/0000:5e:00.0/class":  "0x030000\n",
				"sys/bus/pci/devices/0000:5e:00.0/vendor": "0x10de\n",
			}, nil, Warn, "an NVIDIA GPU without its driver", "modprobe nvidia",
		},
		"a driver that lost its number": {
			"driver",
			map[string]string{"proc/devices": "Character devices:\n"},
			nil, Fail,
			"has no major number of nvidia", "dmesg",
		},
		"no module for CUDA": {
			"driver",
			map[string]string{"proc/devices": "Character devices:\n195 nvidia\n"},
			nil, Warn,
			"1 nvidia, no nvidia-uvm", "nvidia-modprobe -u",
		},
		"a missing device file": {
			"device-files", nil, []string{"nvidia0", "nvidiactl"}, Fail, "is not there", "nvidia-modprobe",
		},
		"a drop file that cannot be read": {
			"drop-files",
			map[string]string{"var/run/tenon/device-infos/gpus.json": "{"},
			nil, Warn,
			"want a JSON array", "tenon-agent probe",
		},
		"no drop file": {
			"drop-files",
			map[string]string{"var/run/tenon/device-infos/gpus.json": "-"},
			nil, Warn,
			"no file lists a device", "write a drop file",
		},
		"a drop file with a card that no driver has": {
			"drop-files",
			map[string]string{"var/run/tenon/device-infos/gpus.json": `[{"uuid":"GPU-b"}]`},
			nil, Fail,
			"gpu GPU-b is not a card of a driver", "correct the UUID",
		},
		"a specification of older cards": {
			"device-cdi", map[string]string{
				"run/cdi/tenon.sh-gpu.yaml": "kind: tenon.sh/gpu\ndevices: [{name: GPU-old}]\n",
			}, nil, Warn, "GPU-a is not in a specification", "to be made again when cards change",
		},
		"no specification": {
			"device-cdi",
			map[string]string{"run/cdi/tenon.sh-gpu.yaml": "-"},
			nil, Warn,
			"GPU-a is not in a specification of tenon.sh/gpu", "start the agent, which writes tenon.sh-gpu.json",
		},
		"a runtime that reads other folders": {
			"device-cdi", map[string]string{
				containerd: goodContainerd + "[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/etc/cdi']\n",
			}, nil, Fail, "cdi_spec_dirs has no /var/run/cdi", "add /var/run/cdi",
		},
		"a runtime that reads the folder by its other name": {
			"device-cdi", map[string]string{
				containerd: goodContainerd + "[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/run/cdi']\n",
			}, nil, OK, "1 device", "",
		},
		"the default handler": {"device-runtime", nil, nil, OK, "the default handler is runc", ""},
		"the NVIDIA runtime as the default handler": {
			"device-runtime", map[string]string{
				containerd: goodContainerd + "[plugins.'io.containerd.cri.v1.runtime'.containerd]\n" +
					"default_runtime_name = 'nvidia'\n",
			}, nil, Fail, "the default handler is nvidia", `default_runtime_name = "runc"`,
		},
		"the NVIDIA runtime in the place of runc": {
			"device-runtime", map[string]string{
				containerd: goodContainerd + "BinaryName = '/usr/bin/nvidia-container-runtime'\n",
			}, nil, Fail, "the default handler is runc, nvidia-container-runtime", `default_runtime_name = "runc"`,
		},
		"nothing that brings libraries": {
			"device-runtime",
			map[string]string{"run/cdi/tenon.sh-gpu.yaml": "-"},
			nil, Warn,
			"the default handler is runc", "nvidia-ctk cdi generate",
		},
		"the NVIDIA runtime beside runc": {
			"device-runtime", map[string]string{
				"run/cdi/tenon.sh-gpu.yaml": "-",
				containerd: goodContainerd +
					"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]\n" +
					"BinaryName = '/usr/bin/nvidia-container-runtime'\n",
			}, nil, OK, "the default handler is runc", "",
		},
		"CRI-O": {
			"device-runtime", map[string]string{
				containerd: "-", "proc/70/cmdline": "/usr/bin/crio\x00", "etc/crio/crio.conf": "",
			}, nil, OK, "the default handler is crun", "",
		},
		"CRI-O with the NVIDIA runtime": {
			"device-runtime", map[string]string{
				containerd: "-", "proc/70/cmdline": "/usr/bin/crio\x00", "run/cdi/tenon.sh-gpu.yaml": "-",
				"etc/crio/crio.conf": "[crio.runtime]\ndefault_runtime = 'gpu'\n[crio.runtime.runtimes.gpu]\n" +
					"runtime_path = '/usr/bin/nvidia-container-runtime'\n",
			}, nil, Fail, "the default handler is gpu, nvidia-container-runtime", `default_runtime = "runc"`,
		},
		"a specification that cannot be read": {
			"device-cdi",
			map[string]string{"run/cdi/tenon.sh-gpu.yaml": "kind: ["},
			nil, Warn,
			"run/cdi/tenon.sh-gpu.yaml", "delete the file",
		},
		"a device plugin beside": {
			"device-mode", map[string]string{
				"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": `{"Data":{"RegisteredDevices":` +
					`{"nvidia.com/gpu":["GPU-a"]}}}`,
			}, nil, Warn, "Own, and the kubelet has 1 nvidia.com/gpu of a device plugin", "remove the device plugin",
		},
		"the agent's plugin in its place": {
			"device-mode", map[string]string{
				"var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": `{"Data":{"RegisteredDevices":` +
					`{"nvidia.com/gpu":["tenon-0"],"tenon.sh/presence":["tenon-0"]}}}`,
			}, nil, OK, "Own", "",
		},
		"no mode": {
			"device-mode", map[string]string{"var/lib/tenon-agent/device.json": "-"}, nil, Unknown, "not followed", "",
		},
	} {
		files := withGPU()
		for file, text := range c.change {
			if files[file] = text; text == "-" {
				delete(files, file)
			}
		}
		root := lay(t, files)
		if c.files == nil {
			c.files = all
		}
		withFiles(t, root, c.files...)
		var got []Finding
		for _, f := range Machine(answers(root, "2.4.2")) {
			if f.Check == c.check {
				got = append(got, f)
			}
		}
		if len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Found, c.found) ||
			!strings.Contains(got[0].Remedy, c.remedy) || (got[0].Remedy == "") != (c.remedy == "") {
			t.Errorf("%s: got %+v, want %s %q with %q to do", name, got, c.status, c.found, c.remedy)
		}
	}
	for _, f := range Machine(answers(lay(t, good()), "2.4.2")) {
		if strings.HasPrefix(f.Check, "device") || f.Check == "driver" || f.Check == "drop-files" {
			t.Errorf("a machine without devices: %+v", f)
		}
	}
}

func TestDevicesOfANode(t *testing.T) {
	t.Parallel()
	made := func(mode string, sick bool) *devicev1alpha1.Device {
		d := &devicev1alpha1.Device{}
		if mode != "" {
			d.Annotations = map[string]string{annotation.DeviceModeKey: mode}
		}
		d.Spec.Devices = []devicev1alpha1.DeviceInfo{{Type: "gpu", ID: "GPU-a", Health: true}, {
			Type: "gpu", ID: "GPU-b", Health: !sick,
			Conditions: []metav1.Condition{{Type: "Healthy", Status: metav1.ConditionFalse, Reason: "Xid79"}},
		}}
		return d
	}
	for name, c := range map[string]struct {
		device   *devicev1alpha1.Device
		capacity string
		status   Status
		found    string
	}{
		"no devices":           {nil, "", "", ""},
		"GPUs of the kubelet":  {nil, "4", OK, "none: the kubelet allocates 4 nvidia.com/gpu"},
		"devices of Tenon":     {made("Own", false), "", OK, "2 devices, mode Own"},
		"an unhealthy one":     {made("Own", true), "", Warn, "2 devices, mode Own, not healthy: gpu GPU-b (Xid79)"},
		"the kubelet's":        {made("Follow", false), "", Warn, "2 devices, mode Follow"},
		"no mode":              {made("", false), "", Fail, "2 devices, mode not set"},
		"a mode that is wrong": {made("Mine", false), "", Fail, "2 devices, mode Mine"},
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{}}}
		if c.capacity != "" {
			n.Status.Capacity["nvidia.com/gpu"] = resource.MustParse(c.capacity)
		}
		var got Finding
		for _, f := range Node(NodeView{Node: n, Device: c.device}) {
			if f.Check == "devices" {
				got = f
			}
		}
		advised := c.status == Warn || c.status == Fail
		if got.Status != c.status || got.Found != c.found || (got.Remedy != "") != advised {
			t.Errorf("%s: got %+v, want %s %q", name, got, c.status, c.found)
		}
	}
}
