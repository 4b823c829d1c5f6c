package view

import (
	"strings"
	"unicode/utf8"
)

// Wrap breaks text behind separators so that no line is wider than width. A word that is wider is broken behind a comma
// or a slash, or anywhere. A width of 0 or less is unlimited.
func Wrap(text, separator string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return []string{text}
	}
	var lines []string
	line := ""
	for word := range strings.SplitAfterSeq(text, separator) {
		if strings.TrimSpace(line) != "" && utf8.RuneCountInString(line+strings.TrimRight(word, " ")) > width {
			lines = append(lines, strings.TrimRight(line, " "))
			line = ""
		}
		for utf8.RuneCountInString(strings.TrimRight(word, " ")) > width {
			part := string([]rune(word)[:width])
			if i := strings.LastIndexAny(part, ",/"); i > 0 {
				part = part[:i+1]
			}
			lines = append(lines, part)
			word = word[len(part):]
		}
		line += word
	}
	return append(lines, strings.TrimRight(line, " "))
}
