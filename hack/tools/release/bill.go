package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const unknown = "NOASSERTION"

// bill is the SPDX document of a program: the modules that are linked, as the program itself lists them.
func (r *release) bill(p program, content []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	licences, err := r.licences(p)
	if err != nil {
		return nil, err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	url := "pkg:golang/" + info.Main.Path + "@" + r.version + "#cmd/" + p.name
	own := describe("Program", p.name, r.version, "Apache-2.0", url)
	own.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	own.PrimaryPackagePurpose = "APPLICATION"
	document := &v2_3.Document{
		SPDXVersion: v2_3.Version, DataLicense: v2_3.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      fmt.Sprintf("%s %s for %s/%s", p.name, r.version, p.os, p.arch),
		DocumentNamespace: r.repository + "/spdx/" + p.name + "-" + sum,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "hack/tools/release"}},
			Created:  r.time.Format(time.RFC3339),
		},
		Packages:      []*v2_3.Package{own},
		Relationships: []*v2_3.Relationship{relate("DOCUMENT", "DESCRIBES", "Program")},
	}
	std := &debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for i, m := range append([]*debug.Module{std}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		id := fmt.Sprintf("Module-%d", i)
		linked := describe(id, m.Path, m.Version, cmp.Or(licences[m.Path], unknown), "pkg:golang/"+m.Path+"@"+m.Version)
		document.Packages = append(document.Packages, linked)
		document.Relationships = append(document.Relationships, relate("Program", "DEPENDS_ON", id))
	}
	var out bytes.Buffer
	err = json.Write(document, &out, json.Indent(" "))
	return out.Bytes(), err
}

func describe(id, name, version, licence, url string) *v2_3.Package {
	return &v2_3.Package{
		PackageSPDXIdentifier: common.ElementID(id), PackageName: name, PackageVersion: version,
		PackageDownloadLocation: unknown, PackageCopyrightText: unknown,
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: licence,
		PackageExternalReferences: []*v2_3.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: url},
		},
	}
}

func relate(from, how, to string) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA: common.MakeDocElementID("", from), Relationship: how, RefB: common.MakeDocElementID("", to),
	}
}

// licences are those of the modules of a platform, as hack/licence has found them.
func (r *release) licences(p program) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(r.in, p.os+"_"+p.arch, "licences"))
	if err != nil {
		return nil, err
	}
	licences := map[string]string{}
	for line := range strings.Lines(string(text)) {
		module, licence, _ := strings.Cut(strings.TrimSpace(line), " ")
		licences[module] = licence
	}
	return licences, nil
}
