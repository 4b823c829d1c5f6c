package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// columns aligns rows of cells, two spaces apart. Colour codes must be applied after alignment, so cells are plain.
type columns struct {
	paint
	width  int // of the terminal, 0 = unlimited: longer lines are cut
	indent string
	right  int // columns 1 to right are aligned to the right
	rows   [][]string
}

func (c *columns) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	c.rows = append(c.rows, row)
}

func (c *columns) lines() []string {
	var widths []int
	for _, row := range c.rows {
		widths = append(widths, make([]int, max(0, len(row)-len(widths)))...)
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(c.rows))
	for i, row := range c.rows {
		var line strings.Builder
		for j, cell := range row {
			width := -widths[j]
			if 0 < j && j <= c.right {
				width = widths[j]
			}
			fmt.Fprintf(&line, "%*s  ", width, cell)
		}
		lines[i] = c.fit(c.indent+strings.TrimRight(line.String(), " "), c.width)
	}
	return lines
}

func (c *columns) String() string { return strings.Join(append(c.lines(), ""), "\n") }
