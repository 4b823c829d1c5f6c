package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// span is text of one colour. The colour is a number of SGR, 0 for the default.
type span struct {
	text   string
	colour int
	bold   bool
	dim    bool
}

// line is what stands in a row in the end, and when its last part came.
type line struct {
	spans []span
	at    time.Duration
}

// screen reads what a program writes that prints line after line: colours, and returns to the begin of a line. Other
// sequences are left out.
type screen struct {
	lines []line
	now   span // its colours
	rest  string
}

func newScreen() *screen { return &screen{lines: []line{{}}} }

var sequence = regexp.MustCompile(`^\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])`)

func (s *screen) write(text string, at time.Duration) {
	text, s.rest = s.rest+text, ""
	for text != "" {
		last := &s.lines[len(s.lines)-1]
		switch c := text[0]; {
		case c == '\x1b':
			found := sequence.FindString(text)
			if found == "" {
				s.rest = text // the others follow
				return
			}
			if strings.HasSuffix(found, "m") {
				s.colour(found[2 : len(found)-1])
			}
			text = text[len(found):]
			continue
		case strings.HasPrefix(text, "\r\n"):
			s.lines = append(s.lines, line{at: at})
			text = text[2:]
			continue
		case c == '\n':
			s.lines = append(s.lines, line{at: at})
		case c == '\r' && len(text) == 1:
			s.rest = text
			return
		case c == '\r':
			last.spans = nil
		default:
			if !utf8.FullRuneInString(text) {
				s.rest = text
				return
			}
			_, n := utf8.DecodeRuneInString(text)
			s.add(last, text[:n])
			last.at = at
			text = text[n:]
			continue
		}
		text = text[1:]
	}
}

func (s *screen) add(l *line, text string) {
	if n := len(l.spans) - 1; n >= 0 {
		if o := l.spans[n]; o.colour == s.now.colour && o.bold == s.now.bold && o.dim == s.now.dim {
			l.spans[n].text += text
			return
		}
	}
	next := s.now
	next.text = text
	l.spans = append(l.spans, next)
}

func (s *screen) colour(numbers string) {
	for _, number := range strings.Split(numbers, ";") {
		switch n, _ := strconv.Atoi(number); {
		case n == 0:
			s.now = span{}
		case n == 1:
			s.now.bold = true
		case n == 2:
			s.now.dim = true
		case n >= 30 && n <= 37 || n >= 90 && n <= 97:
			s.now.colour = n
		case n == 39:
			s.now.colour = 0
		}
	}
}

// end returns the lines without empty ones after the last.
func (s *screen) end() []line {
	for n := len(s.lines); n > 0 && len(s.lines[n-1].spans) == 0; n-- {
		s.lines = s.lines[:n-1]
	}
	return s.lines
}
