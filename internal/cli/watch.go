package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"
)

const watchInterval = 2 * time.Second

// homeAndClear moves a terminal's cursor to the top left and clears what is below.
const homeAndClear = "\x1b[H\x1b[2J"

// watched is one answer of a verb that is called again and again.
type watched struct {
	bytes.Buffer
	// content is what of the answer counts as a change: its JSON without ages. It is the text of an answer that
	// printAnswer has not printed.
	content string
}

// passing are the keys of values that change with time alone.
var passing = []string{"ages", "ageSeconds", "backoffSeconds", "generation", "verifiedAt"}

// compareBy sets the content to the JSON of an answer, without what changes with time alone.
func (w *watched) compareBy(answer any) error {
	text, err := json.Marshal(answer)
	var content any
	if err == nil {
		err = json.Unmarshal(text, &content)
	}
	if err == nil {
		removePassing(content)
		text, err = json.Marshal(content)
	}
	w.content = string(text)
	return err
}

func removePassing(content any) {
	switch c := content.(type) {
	case map[string]any:
		for key, value := range c {
			if slices.Contains(passing, key) {
				delete(c, key)
			} else {
				removePassing(value)
			}
		}
	case []any:
		for _, value := range c {
			removePassing(value)
		}
	}
}

// repeat calls show, and with watch calls it again until ctx ends. An answer is written when something other than an
// age differs from the one before; on a terminal it replaces that one.
func repeat(ctx context.Context, watch bool, every time.Duration, out io.Writer, show func(io.Writer) error) error {
	if !watch {
		return show(out)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		var answer watched
		if err := show(&answer); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		text := answer.String()
		if content := cmp.Or(answer.content, text); content != last {
			last = content
			if terminalWidth(out) > 0 {
				text = homeAndClear + text
			}
			if _, err := io.WriteString(out, text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
