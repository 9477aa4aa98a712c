package plots

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// legend names the curves, in columns below the panels.
type legend struct {
	curves  []Curve
	columns int
}

// legend collects the curves of all panels.
func (f Figure) legend(panels int) legend {
	l := legend{columns: 2 * panels}
	seen := make(map[string]bool)
	for _, row := range f.Panels {
		for _, p := range row {
			for _, c := range p.Curves {
				if !seen[c.Name] && len(c.Points) > 0 {
					seen[c.Name] = true
					l.curves = append(l.curves, c)
				}
			}
		}
	}
	return l
}

func (l legend) lines() int { return (len(l.curves) + l.columns - 1) / l.columns }

func (l legend) height() vg.Length { return vg.Length(l.lines())*legendLine + vg.Millimeter*2 }

func (l legend) draw(c draw.Canvas) {
	style := plot.New().Legend.TextStyle
	style.Font.Size = fontSize
	style.YAlign = draw.YCenter
	width := (c.Max.X - c.Min.X) / vg.Length(l.columns)
	for i, curve := range l.curves {
		x := c.Min.X + vg.Length(i%l.columns)*width + vg.Millimeter*3
		y := c.Min.Y + l.height() - vg.Millimeter*2 - legendLine*(vg.Length(i/l.columns)+0.5)
		const sample = 1.1 * vg.Centimeter
		c.StrokeLine2(curve.line(), x, y, x+sample, y)
		c.DrawGlyph(curve.glyph(), vg.Point{X: x + sample/2, Y: y})
		c.FillText(style, vg.Point{X: x + sample + vg.Millimeter*2, Y: y}, curve.Name)
	}
}
