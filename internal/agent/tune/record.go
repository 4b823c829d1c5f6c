package tune

import (
	"fmt"
	"maps"

	"github.com/tenon-project/tenon/internal/agent/statedir"
)

// recordsFile has the records in the agent's folder.
const recordsFile = "tuning.json"

// record is what a file had before the Engine wrote it, see isolate.File.
type record struct {
	// Identity is what the file was about: the number of an interrupt may be given to another device.
	Identity string `json:"identity,omitempty"`
	Original string `json:"original"`
	Asked    string `json:"asked"`
	Written  string `json:"written"`
	Before   string `json:"before"`
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
