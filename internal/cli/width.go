package cli

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminalWidth is 0 off a terminal.
func terminalWidth(out io.Writer) int {
	if !isTerminal(out) {
		return 0
	}
	width, _, err := term.GetSize(int(out.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return width
}

// fit cuts a line at the terminal's edge. Colour codes must be applied afterwards. A width of 0 is unlimited.
func (p paint) fit(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	mark := p.symbol("…", "...")
	return string([]rune(line)[:max(0, width-utf8.RuneCountInString(mark))]) + mark
}

// wrap breaks text behind separators so that no part is wider than width; a word that is wider stays whole. A width of
// 0 or less is unlimited.
func wrap(text, separator string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var parts []string
	line := ""
	for _, word := range strings.SplitAfter(text, separator) {
		if line != "" && utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > width {
			parts = append(parts, strings.TrimRight(line, " "))
			line = ""
		}
		line += word
	}
	return append(parts, strings.TrimRight(line, " "))
}
