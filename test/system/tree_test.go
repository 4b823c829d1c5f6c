package system

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/tenon-project/tenon/internal/core/cpuset"
)

// tree is the cgroup tree of one simulated node, as the kernel there would show it.
type tree struct {
	node, root string
}

var podDir = regexp.MustCompile(`/pod([0-9a-f-]{36})/`)

func trees(dir string) ([]tree, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "nodes"))
	if err != nil {
		return nil, err
	}
	var out []tree
	for _, e := range entries {
		out = append(out, tree{node: e.Name(), root: filepath.Join(dir, "nodes", e.Name(), "sys/fs/cgroup")})
	}
	return out, nil
}

// read returns the effective CPUs of every container's group in which a process runs, by path. A group without
// processes uses no CPU: it is made before its CPUs are set.
func (t tree) read() (map[string]string, error) {
	out := map[string]string{}
	err := filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // a group that went away while we walked
		}
		if err != nil {
			return err
		}
		if d.Name() != "cpuset.cpus.effective" || d.IsDir() || !podDir.MatchString(path) {
			return nil
		}
		rest := path[podDir.FindStringIndex(path)[1]:]
		if strings.Count(rest, "/") != 1 {
			return nil // the pod's own group, not a container's
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		events, err := os.ReadFile(filepath.Join(filepath.Dir(path), "cgroup.events"))
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if strings.Contains(string(events), "populated 1") {
			out[filepath.Dir(path)] = strings.TrimSpace(string(text))
		}
		return nil
	})
	return out, err
}

// instant returns the tree as it stood at one moment: files cannot be read all at once, so it reads until two reads in
// a row agree (a double collect). ok is false when it never stood still.
func (t tree) instant() (state map[string]string, ok bool, err error) {
	before, err := t.read()
	if err != nil {
		return nil, false, err
	}
	for range 5 {
		after, err := t.read()
		if err != nil {
			return nil, false, err
		}
		if maps.Equal(before, after) {
			return after, true, nil
		}
		before = after
	}
	return nil, false, nil
}

// podOf returns the pod's UID of a container's group.
func podOf(path string) string {
	m := podDir.FindStringSubmatch(path + "/")
	if m == nil {
		return ""
	}
	return m[1]
}

// overlaps lists each container that can run on a CPU it must not use: LSE's CPUs are for no other pod, LSR's for BE
// alone.
func overlaps(node string, state map[string]string, pods map[string]podFact) ([]string, error) {
	var bad []string
	sets := make(map[string]cpuset.Set, len(state))
	for path, list := range state {
		set, err := cpuset.Parse(list)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		sets[path] = set
	}
	for path, own := range sets {
		owner := pods[podOf(path)]
		if owner.cpuset == "" {
			continue
		}
		granted, err := cpuset.Parse(owner.cpuset)
		if err != nil {
			return nil, err
		}
		if own != granted {
			bad = append(bad, fmt.Sprintf("%s: %s runs on %s, its annotation says %s", node, owner.name, own, granted))
		}
		for other, set := range sets {
			if podOf(other) == podOf(path) {
				continue
			}
			guest := pods[podOf(other)]
			if guest.name == "" || owner.class == "LSR" && guest.best {
				continue
			}
			if set.Overlaps(&granted) {
				bad = append(bad, fmt.Sprintf("%s: %s (%s) may run on %s of %s %s", node, guest.name, guest.class,
					set.Intersect(granted), owner.class, owner.name))
			}
		}
	}
	return bad, nil
}
