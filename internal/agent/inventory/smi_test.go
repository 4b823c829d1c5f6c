package inventory_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tenon-project/tenon/internal/agent/host"
	"github.com/tenon-project/tenon/internal/agent/inventory"
	"github.com/tenon-project/tenon/internal/testkit"
)

var update = flag.Bool("update", false, "write the golden files")

// want is the part of a recorded machine that holds what the driver makes of it.
const want = "want.json"

// recorded reads a machine: what its nvidia-smi prints, by its arguments.
func recorded(t *testing.T, file string) (about string, parts map[string]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	testkit.Check(t, err)
	list := strings.Split("\n"+string(text), "\n-- ")
	parts = map[string]string{}
	for _, part := range list[1:] {
		name, content, ok := strings.Cut(part, " --\n")
		if !ok {
			t.Fatalf("%s: part %.40q has no name", file, part)
		}
		parts[name] = content + "\n"
	}
	return list[0], parts
}

// program is an nvidia-smi that prints what was recorded.
func program(parts map[string]string) inventory.RunSMI {
	return func(_ context.Context, args ...string) ([]byte, error) {
		text, ok := parts[strings.Join(args, " ")]
		if !ok {
			return nil, fmt.Errorf("nothing is recorded for %v", args)
		}
		return []byte(text), nil
	}
}

func TestRecordedMachines(t *testing.T) {
	files, err := filepath.Glob("testdata/smi/*.txtar")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d machines: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			about, parts := recorded(t, file)
			list, err := inventory.SMI(slicesRoot(t), program(parts)).Devices()
			fault := ""
			if err != nil {
				fault = err.Error()
			}
			got, _ := json.MarshalIndent(map[string]any{"devices": list, "error": fault}, "", " ")
			if *update {
				text := about
				for _, name := range []string{"-q -x", "topo -m", "nvlink -s", "-L"} {
					if part, ok := parts[name]; ok {
						text += "\n-- " + name + " --\n" + strings.TrimSuffix(part, "\n")
					}
				}
				text = strings.TrimPrefix(text, "\n") + "\n-- " + want + " --\n" + string(got) + "\n"
				testkit.Check(t, os.WriteFile(file, []byte(text), 0o600))
				return
			}
			if d := cmp.Diff(strings.TrimSpace(parts[want]), string(got)); d != "" {
				t.Error(d)
			}
		})
	}
}

// slicesRoot is a machine with the files of the MIG devices 2/0 and 9/0 of its first GPU.
func slicesRoot(t *testing.T) host.Root {
	t.Helper()
	root := host.Root{Dir: t.TempDir()}
	for name, text := range map[string]string{
		"proc/devices": "Character devices:\n236 nvidia-caps\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi2/access":     "DeviceFileMinor: 21\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access": "DeviceFileMinor: 22\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi9/access":     "DeviceFileMinor: 84\n",
		"proc/driver/nvidia/capabilities/gpu0/mig/gi9/ci0/access": "DeviceFileMinor: 85\n",
	} {
		file := root.Path(name)
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600))
		testkit.Check(t, err)
	}
	return root
}

// A second look asks for links again only when the GPUs or the driver have changed, and keeps them while one is lost.
func TestLinksAreAskedForOnce(t *testing.T) {
	_, parts := recorded(t, "testdata/smi/h100-pcie.txtar")
	asked := 0
	d := inventory.SMI(slicesRoot(t), func(ctx context.Context, args ...string) ([]byte, error) {
		if args[0] == "topo" {
			asked++
		}
		return program(parts)(ctx, args...)
	})
	look := func(links int, why string) {
		t.Helper()
		list, _ := d.Devices()
		if len(list[0].Topology.P2PLinks) != 1 || asked != links {
			t.Errorf("%s: %d questions, want %d; links %v", why, asked, links, list[0].Topology.P2PLinks)
		}
	}
	look(1, "the first look")
	look(1, "nothing has changed")
	whole := parts["-q -x"]
	parts["-q -x"] = strings.Replace(whole, "<uuid>GPU-00000005-0000-4000-8000-000000000002", "<uuid>Unknown Error", 1)
	look(1, "the third GPU is lost")
	parts["-q -x"] = strings.Replace(whole, "560.35.03", "570.133.20", 1)
	look(2, "another driver")
}

// A GPU whose MIG devices cannot be read is not given out as a whole one.
func TestAGPUInMIGModeIsNotGivenOutWhole(t *testing.T) {
	_, parts := recorded(t, "testdata/smi/a100-mig.txtar")
	delete(parts, "-L")
	list, err := inventory.SMI(slicesRoot(t), program(parts)).Devices()
	if err == nil || len(list) != 2 {
		t.Fatalf("devices %v, error %v", list, err)
	}
	for _, d := range list {
		if d.Status == nil || d.Status.Healthy || d.Status.ErrCode != "Unread" {
			t.Errorf("%s has the status %+v", d.UUID, d.Status)
		}
	}
}

func TestAnswersThatCannotBeRead(t *testing.T) {
	exit := func(code int) error {
		err := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprint("exit ", code)).Run()
		if err == nil {
			t.Fatal("no exit code")
		}
		return err
	}
	const log = "nvidia_smi_log"
	wrap := func(text string) string { return "<" + log + ">" + text + "</" + log + ">" }
	for name, c := range map[string]struct {
		text string
		err  error
		want string // part of the error; "" for none
	}{
		"the machine has no program":         {err: exec.ErrNotFound},
		"the kernel has no driver":           {text: "NVIDIA-SMI has failed", err: exit(9)},
		"the driver's library is missing":    {err: exit(12)},
		"the program ends without an answer": {err: exit(255), want: "exit status 255"},
		"the answer is another program's":    {text: "<html></html>", want: "want an nvidia_smi_log"},
		"the answer is cut":                  {text: "<" + log + "><gpu id=\"00000000", want: "want an nvidia_smi_log"},
		"a GPU without a PCI address":        {text: wrap(`<gpu id="0"/>`), want: "want a PCI address"},
		"a GPU without a UUID":               {text: wrap(`<gpu id="00000000:01:00.0"/>`), want: "and GPU-"},
		"no GPU":                             {text: wrap("<attached_gpus>0</attached_gpus>")},
		"an entity that names a file": {
			text: `<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]>` + wrap("&e;"),
			want: "invalid character entity",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := inventory.SMI(slicesRoot(t), func(_ context.Context, args ...string) ([]byte, error) {
				if args[0] != "-q" {
					return nil, nil
				}
				return []byte(c.text), c.err
			}).Devices()
			if len(list) != 0 || (err == nil) != (c.want == "") || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("devices %v, error %v: want none, %q", list, err, c.want)
			}
		})
	}
}

func FuzzSMI(f *testing.F) {
	for _, file := range []string{"a100-mig", "h100-pcie", "a10-lost"} {
		text, err := os.ReadFile("testdata/smi/" + file + ".txtar")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "GPU0 X NV1", "GPU 0: (UUID: GPU-1)\nLink 0: 25 GB/s", "MIG 1g.5gb Device 0: (UUID: MIG-1)")
	}
	root := host.Root{Dir: f.TempDir()}
	f.Fuzz(func(t *testing.T, log, matrix, state, names string) {
		_, log, _ = strings.Cut(log, "-- -q -x --\n")
		list, _ := inventory.SMI(root, program(map[string]string{
			"-q -x": log, "topo -m": matrix, "nvlink -s": state, "-L": names,
		})).Devices()
		for _, d := range list {
			if !strings.HasPrefix(d.UUID, "GPU-") && !strings.HasPrefix(d.UUID, "MIG-") {
				t.Errorf("a device without a UUID: %+v", d)
			}
		}
	})
}

// The test program is its own nvidia-smi: TestMain answers where it is run by that name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "nvidia-smi" {
		text, err := os.ReadFile("/answer")
		if err != nil || len(os.Args) < 2 || os.Args[1] != "-q" {
			fmt.Println(os.Args, err) //nolint:forbidigo // this process is a program
			os.Exit(9)
		}
		os.Stdout.Write(text)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The program of the machine runs in the machine's root folder, and that of a driver's container in the container's.
func TestTheProgramRunsInTheRootOfItsDriver(t *testing.T) {
	_, parts := recorded(t, "testdata/smi/h100-pcie.txtar")
	self, err := os.ReadFile("/proc/self/exe")
	testkit.Check(t, err)
	root := slicesRoot(t)
	if list, err := inventory.SMI(root, inventory.HostSMI(root)).Devices(); len(list) != 0 || err != nil {
		t.Errorf("devices %v of a machine without a driver: %v", list, err)
	}
	for _, driver := range []string{".", "run/nvidia/driver"} {
		file := root.Path(driver, "usr/bin/nvidia-smi")
		err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, self, 0o755),
			os.WriteFile(root.Path(driver, "answer"), []byte(parts["-q -x"]), 0o600))
		testkit.Check(t, err)
		list, err := inventory.SMI(root, inventory.HostSMI(root)).Devices()
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			text := "NOT RUN: " + t.Name() + ": wants root and a static test program"
			fmt.Println(text) //nolint:forbidigo // seen without -v
			t.Skip(text)
		}
		// It answers nothing but -q -x: the links are missing.
		if len(list) != 3 || err == nil || !strings.Contains(err.Error(), "topo -m: exit status 9") {
			t.Errorf("%s: %d devices: %v", driver, len(list), err)
		}
		parts["-q -x"] = strings.Replace(parts["-q -x"], "<uuid>GPU-00000005", "<uuid>GPU-00000055", 1)
	}
	list, _ := inventory.SMI(root, inventory.HostSMI(root)).Devices()
	if len(list) != 3 || !strings.HasPrefix(list[0].UUID, "GPU-00000055") {
		t.Errorf("want the answer of the driver's container, got %v", list)
	}
}
