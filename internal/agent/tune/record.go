package tune

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tenon-project/tenon/internal/agent/statedir"
)

// recordsFile has the records in the agent's folder.
const recordsFile = "tuning.json"

// record is what a file had before the Engine wrote it. The Engine owns a file as long as it has one of these values.
type record struct {
	// Identity is what the file was about: the number of an interrupt may be given to another device.
	Identity string `json:"identity,omitempty"`
	Original string `json:"original"`
	// Asked is the value that the Engine writes, Before the one that it replaces: a crash leaves one of the two.
	// Written is what the file has after the write: some chips choose of the CPUs that they are offered.
	Asked   string `json:"asked"`
	Written string `json:"written"`
	Before  string `json:"before"`
}

// owns reports whether a file that has a value is still the Engine's.
func (r *record) owns(file, value string) bool {
	return slices.ContainsFunc([]string{r.Original, r.Asked, r.Written, r.Before},
		func(own string) bool { return equal(file, value, own) })
}

// records is the content of the file of records.
type records struct {
	Version int               `json:"version"`
	Boot    string            `json:"boot"`
	Files   map[string]record `json:"files"`
}

// loadRecords reads the records of this boot. Those that cannot be read are an error, and none then.
func loadRecords(dir statedir.Dir, boot string) (map[string]record, error) {
	var all records
	found, err := dir.Load(recordsFile, &all)
	switch {
	case err == nil && found && all.Version != 1:
		err = fmt.Errorf("%s has version %d, want 1", dir.Path(recordsFile), all.Version)
	case err == nil && all.Boot == boot && all.Files != nil:
		return all.Files, nil
	}
	return map[string]record{}, err
}

func saveRecords(dir statedir.Dir, boot string, files map[string]record) error {
	if len(files) == 0 {
		return dir.Remove(recordsFile)
	}
	return dir.SaveSynced(recordsFile, records{Version: 1, Boot: boot, Files: maps.Clone(files)})
}
