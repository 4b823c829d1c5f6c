// Command release packs programs that hack/release.sh has built, and what accompanies them. It reads
//
//	IN/OS_ARCH/bin/PROGRAM          what is packed
//	IN/OS_ARCH/THIRD_PARTY_NOTICES  part of every package of the platform
//	IN/OS_ARCH/licences             a line "module licence" for each module that is linked
//
// and writes images, or archives, SPDX documents and the manifest of Krew. It also signs, and pushes images that it has
// written. Equal input gives equal bytes: entries are sorted, and all times
// are that of the commit.
package main

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// program is one that was built for one platform.
type program struct {
	name, os, arch string
	file           string // where it is
}

// release is what all packages of one release have in common.
type release struct {
	version, revision string
	time              time.Time // of the commit
	registry, tag     string    // of the images' names
	in, out, licence  string
	chart             string            // that the command after a push installs
	repository        string            // URL of the repository, below which are its releases
	key               *ecdsa.PrivateKey // that signs, or nil
	stdout            io.Writer
}

func main() {
	var r release
	var seconds int64
	var key string
	flag.StringVar(&r.version, "version", "devel", "tag or commit")
	flag.StringVar(&r.revision, "revision", "", "commit")
	flag.Int64Var(&seconds, "time", 0, "time of the commit in `seconds` since 1970")
	flag.StringVar(&r.registry, "registry", "localhost", "registry and folder of the images' names")
	flag.StringVar(&r.tag, "tag", "devel", "tag of the images")
	flag.StringVar(&r.licence, "licence", "LICENSE", "`file` of the licence")
	flag.StringVar(&r.in, "in", "", "`folder` of what was built")
	flag.StringVar(&r.out, "out", "", "`folder` to write to")
	flag.StringVar(&r.chart, "chart", "deploy/chart", "chart that the printed command installs, after push")
	flag.StringVar(&r.repository, "repository", "https://github.com/tenon-project/tenon",
		"`URL` of the repository, which labels, bills and Krew's manifest name")
	flag.StringVar(&key, "key", "", "`file` of the private key that signs")
	flag.Parse()
	r.time, r.stdout = time.Unix(seconds, 0).UTC(), os.Stdout
	var err error
	if key != "" {
		r.key, err = readKey(key)
	}
	if err == nil {
		err = r.run(flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func (r *release) run(what string) error {
	switch what {
	case "push":
		return r.push()
	case "key": // the flags are read
		return nil
	}
	pack, known := map[string]func([]program) error{
		"images": r.images, "archives": r.archives, "krew": r.krew, "checksums": r.checksums, "sign": r.signChecksums,
	}[what]
	if !known {
		return fmt.Errorf("unknown step %q: use key, images, archives, krew, checksums, sign or push", what)
	}
	programs, err := find(r.in)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return pack(programs)
}

// find lists the programs below a folder, sorted by platform and name.
func find(in string) ([]program, error) {
	files, err := filepath.Glob(filepath.Join(in, "*_*", "bin", "*"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s/OS_ARCH/bin contains no programs", in)
	}
	var programs []program
	for _, file := range files {
		goos, arch, _ := strings.Cut(filepath.Base(filepath.Dir(filepath.Dir(file))), "_")
		name := strings.TrimSuffix(filepath.Base(file), ".exe")
		programs = append(programs, program{name: name, os: goos, arch: arch, file: file})
	}
	return programs, nil
}

// contents are the program and the texts that its licences ask for.
func (r *release) contents(p program) ([]entry, error) {
	entries := []entry{
		{name: filepath.Base(p.file), mode: 0o755, file: p.file},
		{name: "LICENSE", mode: 0o644, file: r.licence},
		{name: "THIRD_PARTY_NOTICES", mode: 0o644, file: filepath.Join(r.in, p.os+"_"+p.arch, "THIRD_PARTY_NOTICES")},
	}
	for i := range entries {
		var err error
		if entries[i].content, err = os.ReadFile(entries[i].file); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// sums is the file of checksums.
const sums = "checksums.txt"

// checksums writes the SHA-256 of every file of the release, as sha256sum --check reads it.
func (r *release) checksums([]program) error {
	files, err := os.ReadDir(r.out) // sorted
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, f := range files {
		if f.IsDir() || strings.HasPrefix(f.Name(), sums) {
			continue
		}
		sum, err := checksum(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sums), []byte(lines.String()), 0o644)
}

// checksum is the SHA-256 of a file in hexadecimal digits.
func checksum(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(content)), nil
}
