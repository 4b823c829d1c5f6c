//go:build linux && e2e_install

package installed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

const (
	// version is that of the chart in the repository, and the tag of the images that its default values name.
	version = "devel"
	// imagesVariable names the folder of images, helmVariable Helm's program.
	imagesVariable = "TENON_IMAGES"
	helmVariable   = "TENON_STAGE_HELM"
)

func TestMain(m *testing.M) {
	flag.Parse()                                          // prepare asks for -test.short
	if err := os.Setenv("VERSION", version); err != nil { // of all programs that are built
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(stage.Main(m, stage.Needs{
		Level: 6, Unit: "cases", Tools: []string{"kubelet"},
		Binaries: []string{"k8s.io/kubernetes/cmd/kube-scheduler"},
		Plane:    true, PlaneFlags: []string{"--bare", "--node=" + nodeName},
		Prepare: prepare,
	}))
}

// prepare builds Helm's program and the images.
func prepare(root string) error {
	if !testing.Short() {
		if err := errors.Join(preparePrevious(root), prepareKoordinator(root), prepareGuest()); err != nil {
			return err
		}
	}
	helm := filepath.Join(root, ".cache", "helm")
	if err := command(filepath.Join(root, "hack/tools/helm"), nil, "go", "build", "-o", helm,
		"helm.sh/helm/v3/cmd/helm"); err != nil {
		return err
	}
	if err := os.Setenv(helmVariable, helm); err != nil || os.Getenv(imagesVariable) != "" {
		return err
	}
	images := filepath.Join(root, ".cache", "node", "images")
	if err := os.Setenv(imagesVariable, images); err != nil {
		return err
	}
	return buildImages(root, images, version, append(programs(), consoleProgram)...)
}

// programs are those whose images the chart names by default, and the proxy's.
func programs() []string {
	return []string{"tenon-scheduler", "tenon-manager", "tenon-descheduler", "tenon-agent", "tenon-runtime-proxy"}
}

// buildImages builds the images of programs of a tree of sources as a release does.
func buildImages(root, out, tag string, programs ...string) error {
	return command(root, []string{
		"OUT=" + out, "TAG=" + tag, "VERSION=" + version, "SOURCE_DATE_EPOCH=0",
		"PLATFORMS=linux/" + runtime.GOARCH, "PROGRAMS=" + strings.Join(programs, " "),
	}, "bash", "hack/release.sh", "images")
}

// command runs a program in a folder; the error has what it printed.
func command(dir string, env []string, name string, arguments ...string) error {
	c := exec.CommandContext(context.Background(), name, arguments...)
	c.Dir, c.Env = dir, append(append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"), env...)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, text)
	}
	return nil
}
