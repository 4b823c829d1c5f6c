package diag

import (
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/component-base/logs"
)

// maxFlagBody is far above any value that a flag takes.
const maxFlagBody = 1 << 10

// Flags are the switches of `PUT /debug/flags`. The zero value has all of them off. Safe for concurrent use.
type Flags struct {
	// The scheduling loop reads both in each cycle, so they are atomic.
	topScores      atomic.Int64
	filterFailures atomic.Bool
}

// TopScores is the number of nodes whose scores are printed per scheduled pod; 0 = none.
func (f *Flags) TopScores() int { return int(f.topScores.Load()) }

// FilterFailures reports whether the reasons of every failed attempt are printed.
func (f *Flags) FilterFailures() bool { return f.filterFailures.Load() }

// setTopScores sets the number from text and returns the answer, in the words of Koordinator.
func (f *Flags) setTopScores(text string) (string, error) {
	n, err := strconv.Atoi(text)
	if err == nil && n < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return "", fmt.Errorf("failed set debugTopNScores %s: %w", text, err)
	}
	f.topScores.Store(int64(n))
	return "successfully set debugTopNScores to " + text, nil
}

// setFilterFailures sets the switch from text and returns the answer, in the words of Koordinator.
func (f *Flags) setFilterFailures(text string) (string, error) {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return "", fmt.Errorf("failed set debugFilterFailure %s: %w", text, err)
	}
	f.filterFailures.Store(on)
	return "successfully set debugFilterFailure to " + text, nil
}

// flag is one switch as it is served. set changes it and returns the answer; get returns its value, empty for a value
// that cannot be read back.
type flag struct {
	// name is the last part of the path, meaning the text for people.
	name, meaning string
	set           func(text string) (string, error)
	get           func() string
}

// served returns all switches in the order in which the index lists them.
func (f *Flags) served() []flag {
	return []flag{
		{
			"f", "print why nodes were refused, per failed attempt", f.setFilterFailures,
			func() string { return strconv.FormatBool(f.FilterFailures()) },
		},
		{
			"s", "print the scores of this many nodes per scheduled pod", f.setTopScores,
			func() string { return strconv.Itoa(f.TopScores()) },
		},
		{"v", "log level", logs.GlogSetter, func() string { return "" }},
	}
}

// put serves one switch. Only PUT changes anything; every answer is plain text with one newline.
func (fl flag) put(audit func(r *http.Request, value string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			writeText(w, http.StatusNotAcceptable, "unsupported http method")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFlagBody))
		if err != nil {
			writeText(w, http.StatusBadRequest, fmt.Sprintf("read the value of flag %s: %v", fl.name, err))
			return
		}
		value := strings.TrimSuffix(string(body), "\n")
		answer, err := fl.set(value)
		if err != nil {
			writeText(w, http.StatusBadRequest, err.Error())
			return
		}
		audit(r, value)
		writeText(w, http.StatusOK, answer)
	}
}

// flagIndex is the page of all flags.
var flagIndex = template.Must(template.New("flags").Parse(`<!doctype html>
<html><head><title>/debug/flags</title></head><body>
<h1>/debug/flags</h1>
<table>
{{range .}}<tr><td><a href="/debug/flags/{{.Name}}">{{.Name}}</a></td><td>{{.Value}}</td><td>{{.Meaning}}</td></tr>
{{end}}</table>
<p>Set one with: curl -X PUT …/debug/flags/NAME --data VALUE</p>
</body></html>
`))

// index answers with a page of all switches and their values.
func (f *Flags) index(w http.ResponseWriter, _ *http.Request) {
	type row struct{ Name, Value, Meaning string }
	var rows []row
	for _, fl := range f.served() {
		rows = append(rows, row{fl.name, fl.get(), fl.meaning})
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = flagIndex.Execute(w, rows) // the caller has gone
}

// writeText answers with one line of plain text.
func writeText(w http.ResponseWriter, status int, text string) {
	writeRaw(w, status, "text/plain", []byte(text+"\n"))
}
