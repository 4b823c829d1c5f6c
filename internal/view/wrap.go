package view

import (
	"regexp"
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

// WrapLines breaks the lines of a text that are wider than width behind blanks. What follows is below the text of its
// line, or below what stands two blanks or more from the first column, such as the explanation of a flag. A word that
// is wider, such as a path to copy, is whole. Lines with colours are as their writer made them. A width of 0 or less
// is unlimited.
func WrapLines(text string, width int) string {
	if width <= 0 {
		return text
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimRight(line, " \n")) <= width || strings.Contains(line, "\x1b") {
			out.WriteString(line)
			continue
		}
		head, indent := split(line, width)
		out.WriteString(head)
		begun := utf8.RuneCountInString(head)
		used := begun
		for word := range strings.FieldsSeq(line[len(head):]) {
			n := utf8.RuneCountInString(word)
			switch {
			case used == begun:
			case used+1+n > width:
				out.WriteString("\n" + strings.Repeat(" ", indent))
				used, begun = indent, -1
			default:
				out.WriteByte(' ')
				used++
			}
			out.WriteString(word)
			used += n
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// split returns what of a line stays before its text, and how far the lines below are indented.
func split(line string, width int) (head string, indent int) {
	const narrowest = 20
	blanks := len(line) - len(strings.TrimLeft(line, " "))
	if gap := strings.Index(line[blanks:], "  "); gap > 0 {
		rest := line[blanks+gap:]
		head = line[:len(line)-len(strings.TrimLeft(rest, " "))]
		if indent = utf8.RuneCountInString(head); width-indent >= narrowest {
			return head, indent
		}
	}
	return line[:blanks], blanks + 2
}

// command finds where a remedy begins to be a command.
var command = regexp.MustCompile(`(^|: |; )(cpupower|dmesg|echo|ethtool|grubby|helm|kubectl|modprobe|nvidia-[a-z]+|` +
	`rm|systemctl|tenon|udevadm) `)

// wrapRemedy is Wrap for what to do. A command that is broken ends each line but its last one with a backslash, so that
// a shell takes the lines as they are copied.
func wrapRemedy(text string, width int) []string {
	lines, from := Wrap(text, " ", width-2), len(text)
	if at := command.FindStringSubmatchIndex(text); at != nil {
		from = at[4]
	}
	end := 0
	for i := range lines[:len(lines)-1] {
		if end += len(lines[i]) + 1; end > from {
			lines[i] += ` \`
		}
	}
	return lines
}
