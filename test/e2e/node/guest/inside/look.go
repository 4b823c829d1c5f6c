package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tenon-project/tenon/test/e2e/node/guest/wire"
)

// tree is where the kernel's groups are.
const tree = "/sys/fs/cgroup"

// groupFiles are the files that look reads of each group, parentFiles those of the group above.
func groupFiles() []string {
	return []string{
		"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective", "cpuset.cpus.partition",
		"cpu.max",
		"cpu.weight", "memory.max",
	}
}

func parentFiles() []string { return []string{"cpuset.cpus", "cpuset.cpus.effective", "cpu.max"} }

// look prints all groups below one that hold processes.
func look(args []string) error {
	root := filepath.Join(tree, "kubepods")
	if len(args) > 0 {
		root = filepath.Join(tree, args[0])
	}
	groups := []wire.Group{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it ended meanwhile
			return nil
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		}
		if g := group(path); len(g.Processes) > 0 {
			groups = append(groups, g)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(groups)
}

func group(path string) wire.Group {
	g := wire.Group{Path: strings.TrimPrefix(path, tree), Files: map[string]string{}}
	for _, name := range groupFiles() {
		if text, err := os.ReadFile(filepath.Join(path, name)); err == nil {
			g.Files[name] = strings.TrimSpace(string(text))
		}
	}
	for _, name := range parentFiles() {
		if text, err := os.ReadFile(filepath.Join(path, "..", name)); err == nil {
			g.Files["../"+name] = strings.TrimSpace(string(text))
		}
	}
	procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
	if err != nil {
		return g
	}
	for pid := range strings.FieldsSeq(string(procs)) {
		if p, ok := process(pid); ok {
			g.Processes = append(g.Processes, p)
		}
	}
	return g
}

// process reads one process; ok is false when it has ended.
func process(pid string) (p wire.Process, ok bool) {
	number, err := strconv.Atoi(pid)
	if err != nil {
		return p, false
	}
	folder := filepath.Join("/proc", pid)
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return p, false
	}
	p.PID = number
	for line := range strings.SplitSeq(string(status), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); name {
		case "Name":
			p.Name = value
		case "Cpus_allowed_list":
			p.CPUs = value
		case "Mems_allowed_list":
			p.Mems = value
		}
	}
	p.Class = class(pid)
	if maps, err := os.ReadFile(filepath.Join(folder, "numa_maps")); err == nil {
		p.Anonymous = anonymous(string(maps))
	}
	if stat, err := os.ReadFile(filepath.Join(folder, "stat")); err == nil {
		// The name may hold spaces; what follows it does not. The start is field 22.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 19 {
			p.Started = fields[19]
		}
	}
	return p, true
}

// anonymous adds up the pages of mappings that belong to no file.
func anonymous(maps string) map[int]int {
	pages := map[int]int{}
	for line := range strings.SplitSeq(maps, "\n") {
		if !strings.Contains(line, " anon=") || strings.Contains(line, " file=") {
			continue
		}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			node, err1 := strconv.Atoi(strings.TrimPrefix(name, "N"))
			count, err2 := strconv.Atoi(value)
			if strings.HasPrefix(name, "N") && err1 == nil && err2 == nil {
				pages[node] += count
			}
		}
	}
	return pages
}

// class is what a process's environment says about its pod; "" where nothing does.
func class(pid string) string {
	environ, err := os.ReadFile("/proc/" + pid + "/environ")
	if err != nil {
		return ""
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if class, found := strings.CutPrefix(variable, classVariable); found {
			return class
		}
	}
	return ""
}
