//go:build linux && e2e_install

package installed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tenon-project/tenon/internal/testkit"
	"github.com/tenon-project/tenon/test/e2e/node/stage"
)

// The release before this one: the last tag before this commit, or the commit in a file where there is none. Its
// sources are unpacked and built beside the others.
const (
	previousFile     = "test/e2e/cluster/previous"
	previousTag      = "previous"
	previousVariable = "TENON_STAGE_PREVIOUS"
	// oldDefinition is a CRD that gets another short name there: releases differ in CRDs now and then.
	oldDefinition = "devices.scheduling.koordinator.sh"
	oldFile       = "deploy/chart/files/crds/scheduling.koordinator.sh_devices.yaml"
	oldName       = "previousdevices"
)

// small are requests with which the pods of two releases have room together on two CPUs: being critical, they would
// preempt others.
const small = "scheduler.resources.requests.cpu=50m,manager.resources.requests.cpu=50m"

// preparePrevious unpacks the sources of the previous release and builds its images, once.
func preparePrevious(root string) error {
	find := exec.CommandContext(context.Background(), "bash", "-c", `git rev-parse --verify "$(git describe --tags \
		--abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null || cat "$0")^{commit}"`, previousFile)
	find.Dir = root
	text, err := find.Output()
	if err != nil {
		return fmt.Errorf("find the previous release, by its tag or the commit in %s: %w", previousFile, err)
	}
	commit := strings.TrimSpace(string(text))
	folder := filepath.Join(root, ".cache", "node", previousTag, commit)
	if err := os.Setenv(previousVariable, folder); err != nil {
		return err
	}
	images := filepath.Join(folder, "images")
	if _, err := os.Stat(images); err == nil {
		return nil
	}
	sources := filepath.Join(folder, "sources")
	if err := os.MkdirAll(sources, 0o755); err != nil {
		return err
	}
	if err := command(root, nil, "bash", "-c", fmt.Sprintf("set -o pipefail; git archive %s | tar -x -C %q", commit,
		sources)); err != nil {
		return fmt.Errorf("%s: unpack the previous release: %w", previousFile, err)
	}
	older := "s/^  scope: /    shortNames: [" + oldName + "]\\n&/"
	if err := command(sources, nil, "sed", "-i", older, oldFile); err != nil {
		return err
	}
	if err := buildImages(sources, images+".new", previousTag, programs()...); err != nil {
		return err
	}
	return os.Rename(images+".new", images)
}

// upgrade installs the previous release, upgrades it and goes back, under pods that the cases before left on both
// nodes. All the time the webhooks answer and the pods keep their CPUs. The guest, which may not answer within the
// five seconds that a webhook has, gets agents alone; replicas come to it when no answer is waited for.
func (c *cluster) upgrade(t *testing.T) {
	previous := os.Getenv(previousVariable)
	images, err := filepath.Glob(filepath.Join(previous, "images", "*.tar")) // it may have fewer programs
	testkit.Check(t, err)
	if len(images) < 4 {
		t.Fatalf("the previous release has only the images %q", images)
	}
	for _, image := range images {
		c.runtime.Import(image)
	}
	keeps, guestKeeps := c.keep(t, c.bound(t)), c.keep(t, c.boundOnGuest(t))
	c.helm(t, "uninstall", "tenon")
	c.awaitGone(t)
	c.cordon(t, true)
	const cordoned = "nodes" // the check that warns of it
	c.helm(t, "install", "tenon", filepath.Join(previous, "sources", "deploy/chart"), "--set", small,
		"--set", "image.tag="+previousTag+",scheduler.garbageCollection=150")
	c.isWell(t, "versions", cordoned)
	c.awaitImages(t, previousTag)
	c.defines(t, oldName)

	answers := c.keepAsking(t)
	c.helm(t, "upgrade", "tenon", filepath.Join(c.root, "deploy/chart"), "--reset-values", "--set", small)
	c.awaitImages(t, version)
	c.defines(t)
	c.isWell(t, cordoned)
	c.remove(t, c.create(t, workload("after-upgrade", "LS", "10m"))...)

	c.helm(t, "rollback", "tenon")
	c.awaitImages(t, previousTag)
	c.defines(t, oldName)
	c.isWell(t, "versions", cordoned)
	c.remove(t, c.create(t, workload("after-rollback", "LS", "10m"))...)
	answers()

	c.cordon(t, false)
	c.helm(t, "upgrade", "tenon", filepath.Join(c.root, "deploy/chart"), "--reset-values", "--set", small)
	c.awaitImages(t, version)
	c.areSpread(t)
	keeps()
	guestKeeps()
}

// cordon lets the guest have no new pods but those of DaemonSets, or all again.
func (c *cluster) cordon(t *testing.T, cordoned bool) {
	t.Helper()
	_, err := c.client.CoreV1().Nodes().Patch(t.Context(), guestName, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned), metav1.PatchOptions{})
	testkit.Check(t, err)
}

// defines looks at the short names of the CRD in which the releases differ.
func (c *cluster) defines(t *testing.T, want ...string) {
	t.Helper()
	definitions := schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	}
	found, err := c.objects.Resource(definitions).Get(t.Context(), oldDefinition, metav1.GetOptions{})
	testkit.Check(t, err)
	got, _, err := unstructured.NestedStringSlice(found.Object, "spec", "names", "shortNames")
	testkit.Check(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("short names of %s: %q, want %q", oldDefinition, got, want)
	}
}

// awaitGone waits until the components' pods have ended.
func (c *cluster) awaitGone(t *testing.T) {
	t.Helper()
	stage.AwaitWithin(t, guestPatience, "the pods of the release to end", func() error {
		list, err := c.client.CoreV1().Pods(home).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s is left", list.Items[0].Name)
		}
		return err
	})
}

// awaitImages waits until all pods of the components are ready and of one release; those that end count too.
func (c *cluster) awaitImages(t *testing.T, tag string) {
	t.Helper()
	stage.AwaitWithin(t, guestPatience, "the pods of "+tag, func() error {
		want, err := c.desired(t)
		if err != nil {
			return err
		}
		list, err := c.client.CoreV1().Pods(home).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("%d pods, want %d", len(list.Items), want)
		}
		for i := 0; err == nil && i < len(list.Items); i++ {
			p := &list.Items[i]
			if image := p.Spec.Containers[0].Image; !isReady(p) || !strings.HasSuffix(image, ":"+tag) {
				err = fmt.Errorf("%s: %s", image, state(p))
			}
		}
		return err
	})
}

// desired returns how many pods the release has.
func (c *cluster) desired(t *testing.T) (n int, err error) {
	deployments, err := c.client.AppsV1().Deployments(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for i := range deployments.Items {
		n += int(*deployments.Items[i].Spec.Replicas)
	}
	agents, err := c.client.AppsV1().DaemonSets(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	for i := range agents.Items {
		n += int(agents.Items[i].Status.DesiredNumberScheduled)
	}
	return n, nil
}
