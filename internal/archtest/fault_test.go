package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// leastFaults is how many cases the page of bad input and faults promises.
const leastFaults = 50

// TestEveryFaultOfTheReferenceIsTested looks for each test that the page names, and for the name of its case.
func TestEveryFaultOfTheReferenceIsTested(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "reference", "faults.md"))
	if err != nil {
		t.Fatal(err)
	}
	folders, named := map[string]string{}, map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| .*\| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		if row[1] == "Test" {
			continue
		}
		match := regexp.MustCompile("^`([a-z0-9/]+): (Test[A-Za-z0-9]+)/?(.*)`$").FindStringSubmatch(row[1])
		if match == nil {
			t.Errorf("%q is not `FOLDER: TEST` or `FOLDER: TEST/CASE`", row[1])
			continue
		}
		folder, test, name := match[1], match[2], match[3]
		if named[row[1]] {
			t.Errorf("%s is named twice", row[1])
		}
		named[row[1]] = true
		if folders[folder] == "" {
			files, err := filepath.Glob(filepath.Join(root(t), folder, "*_test.go"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				folders[folder] += string(text)
			}
		}
		if text := folders[folder]; !strings.Contains(text, "\nfunc "+test+"(") ||
			name != "" && !strings.Contains(text, strconv.Quote(name)) {
			t.Errorf("%s: no test or case has this name", row[1])
		}
	}
	if len(named) < leastFaults {
		t.Errorf("%d cases, at least %d are promised", len(named), leastFaults)
	}
}
