package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAScreenIsWhatATerminalShows(t *testing.T) {
	t.Parallel()
	s := newScreen()
	for i, part := range []string{"a\x1b[1;31mb\x1b", "[0mc\r\n", "old\rne", "w \xe2", "\x96\x88\r", "\n\r\n"} {
		s.write(part, time.Duration(i)*time.Second)
	}
	want := []line{
		{spans: []span{{text: "a"}, {text: "b", colour: 31, bold: true}, {text: "c"}}, at: time.Second},
		{spans: []span{{text: "new █"}}, at: 4 * time.Second},
	}
	if d := cmp.Diff(want, s.end(), cmp.AllowUnexported(line{}, span{})); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

func TestACommandIsRecordedInATerminal(t *testing.T) {
	t.Parallel()
	s, err := play(t.Context(), "stty size; printf '\\033[32mok <&>\\033[0m\\n'")
	if err != nil {
		t.Skipf("NOT RUN: no terminal: %v", err)
	}
	want := [][]span{{{text: "36 100"}}, {{text: "ok <&>", colour: 32}}}
	var got [][]span
	for _, l := range s.lines {
		got = append(got, l.spans)
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(span{})); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

// TestAPictureIsXMLAndShowsEachLineOnce: also the last scene, where animations are off.
func TestAPictureIsXMLAndShowsEachLineOnce(t *testing.T) {
	t.Parallel()
	scenes := []scene{
		{"a", []line{{spans: []span{{text: "1   < 2"}}, at: time.Hour}}},
		{"b -c", []line{{spans: []span{{text: "done", colour: 32, dim: true}}}, {}}},
	}
	picture := string(draw(scenes))
	const columns = "1\u00a0\u00a0\u00a0&lt;\u00a02" // browsers join other spaces
	for _, want := range []string{
		columns, "$\u00a0</tspan>b\u00a0-c", `fill="#7ee787" opacity=".65">done`, `dur="11.22s"`,
	} {
		if strings.Count(picture, want) == 0 {
			t.Errorf("the picture has no %s:\n%s", want, picture)
		}
	}
	if n := strings.Count(picture, `<g opacity="1">`); n != 1 {
		t.Errorf("%d scenes are visible without animations", n)
	}
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
