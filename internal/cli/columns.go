package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// columns aligns rows of cells, two spaces apart. Colour codes must be applied after alignment, so cells are plain.
type columns struct {
	indent string
	rows   [][]string
	// width is that of the terminal, 0 = unlimited: longer lines are cut.
	width int
	paint paint
	// right holds the columns that are aligned to the right.
	right map[int]bool
}

func (c *columns) add(cells ...string) { c.rows = append(c.rows, cells) }

func (c *columns) write(w io.Writer) error {
	var widths []int
	for _, row := range c.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range c.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if c.right[i] {
				line.WriteString(pad + cell + "  ")
			} else {
				line.WriteString(cell + pad + "  ")
			}
		}
		if _, err := fmt.Fprintln(w, c.paint.fit(c.indent+strings.TrimRight(line.String(), " "), c.width)); err != nil {
			return err
		}
	}
	return nil
}
