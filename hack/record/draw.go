package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// scene is a command and what it printed.
type scene struct {
	command string
	lines   []line
}

const (
	keystroke = 45 * time.Millisecond
	pause     = time.Second     // the longest wait that is shown
	reading   = 5 * time.Second // how long a scene stays when it is complete
	fontWidth = 8.4             // of a character of 14 pixels
	rowHeight = 18
	margin    = 14
)

// palette is the colour of each number of SGR.
var palette = map[int]string{
	30: "#8b949e", 31: "#ff7b72", 32: "#7ee787", 33: "#e3b341",
	34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea", 37: "#c9d1d9",
	90: "#8b949e", 91: "#ffa198", 92: "#7ee787", 93: "#f2cc60",
	94: "#a5d6ff", 95: "#e2c5ff", 96: "#b3f0ff", 97: "#ffffff",
}

// draw writes all scenes one after the other. Each line has the time at which it appears, as a part of the whole.
func draw(scenes []scene) []byte {
	var total time.Duration
	starts := make([]time.Duration, len(scenes)+1)
	cut := make([][]time.Duration, len(scenes)) // when each line comes, from the start of its scene
	for i, s := range scenes {
		at, was := typed(s.command), time.Duration(0)
		for _, l := range s.lines {
			at += min(l.at-was, pause)
			was = l.at
			cut[i] = append(cut[i], at)
		}
		total += at + reading
		starts[i+1] = total
	}
	tallest := 0
	for _, s := range scenes {
		tallest = max(tallest, len(s.lines))
	}
	var b strings.Builder
	width, height := int(columns*fontWidth)+2*margin, (tallest+2)*rowHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&b, "<!-- Written by hack/record: make recording. DO NOT EDIT. -->\n"+
		`<rect width="100%%" height="100%%" rx="8" fill="#0d1117"/>`+"\n"+
		`<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace" font-size="14" `+
		`fill="#c9d1d9">`+"\n")
	part := func(at time.Duration) float64 { return at.Seconds() / total.Seconds() }
	for i, s := range scenes {
		last := 1 // the scene that a picture without animations shows
		if i+1 < len(scenes) {
			last = 0
		}
		fmt.Fprintf(&b, `<g opacity="%d">%s`+"\n", last, shown(total, part(starts[i]), part(starts[i+1])))
		typing := ""
		for n := range []rune(s.command) {
			end := string([]rune(s.command)[:n+1])
			from, until := starts[i]+time.Duration(n)*keystroke, starts[i]+time.Duration(n+1)*keystroke
			if n+1 == len([]rune(s.command)) {
				until = starts[i+1]
			}
			opacity := 0
			if until == starts[i+1] {
				opacity = 1
			}
			typing += fmt.Sprintf(`<text x="%d" y="%d" opacity="%d" textLength="%.1f">`+
				`<tspan fill="#7ee787">%s</tspan>%s%s</text>`+"\n", margin, margin+rowHeight, opacity,
				float64(n+3)*fontWidth, escape("$ "), escape(end),
				shown(total, part(from), part(until)))
		}
		b.WriteString(typing)
		for row, l := range s.lines {
			animation := shown(total, part(starts[i]+cut[i][row]), part(starts[i+1]))
			b.WriteString(text(l, margin+(row+2)*rowHeight, animation))
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</g>\n</svg>\n")
	return []byte(b.String())
}

func typed(command string) time.Duration { return time.Duration(len([]rune(command))) * keystroke }

// shown makes an element visible from one part of the whole to another.
func shown(total time.Duration, from, until float64) string {
	values, times := "0;1", fmt.Sprintf("0;%.5f", from)
	if from == 0 {
		values, times = "1", "0"
	}
	if until < 1 {
		values, times = values+";0", fmt.Sprintf("%s;%.5f", times, until)
	}
	return fmt.Sprintf(`<animate attributeName="opacity" calcMode="discrete" values="%s" keyTimes="%s" dur="%.2fs" `+
		`repeatCount="indefinite"/>`, values, times, total.Seconds())
}

func text(l line, y int, animation string) string {
	if len(l.spans) == 0 {
		return ""
	}
	var b strings.Builder
	length := 0
	for _, s := range l.spans {
		length += len([]rune(s.text))
		style := ""
		if c := palette[s.colour]; c != "" {
			style += fmt.Sprintf(` fill="%s"`, c)
		}
		if s.bold {
			style += ` font-weight="bold"`
		}
		if s.dim {
			style += ` opacity=".65"`
		}
		fmt.Fprintf(&b, "<tspan%s>%s</tspan>", style, escape(s.text))
	}
	return fmt.Sprintf(`<text x="%d" y="%d" textLength="%.1f">%s%s</text>`+"\n", margin, y, float64(length)*fontWidth,
		b.String(), animation)
}

// escape makes a text a part of a picture. Browsers join spaces, whatever xml:space says, so they become no-break ones.
func escape(text string) string { return strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0") }
