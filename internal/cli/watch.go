package cli

import (
	"bytes"
	"context"
	"io"
	"time"
)

const watchInterval = 2 * time.Second

// homeAndClear moves a terminal's cursor to the top left and clears what is below.
const homeAndClear = "\x1b[H\x1b[2J"

// repeat calls show, and with watch calls it again until ctx ends. An answer is written when it differs from the one
// before; on a terminal it replaces that one.
func repeat(ctx context.Context, watch bool, every time.Duration, out io.Writer, show func(io.Writer) error) error {
	if !watch {
		return show(out)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	last := ""
	for {
		var answer bytes.Buffer
		if err := show(&answer); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if text := answer.String(); text != last {
			last = text
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
