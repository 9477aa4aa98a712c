// Package chart draws curves for people, also for those who see few colours: each
// curve has a colour, a mark and a dash of its own.
package chart

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Point is a median with the least and the most.
type Point struct{ X, Y, Low, High float64 }

// Curve is one line. Curves of the same name look alike in all panels.
type Curve struct {
	Name   string
	Points []Point
}

// Panel is one pair of axes, both logarithmic.
type Panel struct {
	Title  string // says what the y axis shows
	X      string
	Curves []Curve
}

// The palette of Okabe and Ito, without its yellow, which is hard to see on white.
var colours = []color.RGBA{
	{A: 255},
	{R: 0, G: 114, B: 178, A: 255},
	{R: 0, G: 158, B: 115, A: 255},
	{R: 213, G: 94, B: 0, A: 255},
	{R: 204, G: 121, B: 167, A: 255},
	{R: 86, G: 180, B: 233, A: 255},
	{R: 230, G: 159, B: 0, A: 255},
}

var marks = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.BoxGlyph{},
}

const (
	fontSize   = vg.Length(9)
	panelSize  = 8 * vg.Centimeter
	panelWidth = 11 * vg.Centimeter
	legendLine = 0.38 * vg.Centimeter
	space      = 0.4 * vg.Centimeter
)

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

// Save draws rows of panels, with one legend below, as a PNG file.
func Save(path string, panels [][]Panel) error {
	p := &page{legend: plot.NewLegend()}
	p.legend.Left, p.legend.Top, p.legend.TextStyle.Font.Size = true, true, fontSize
	all := make([][]*plot.Plot, len(panels))
	for i, row := range panels {
		for _, panel := range row {
			drawn, err := p.draw(panel)
			if err != nil {
				return fmt.Errorf("drawing %s: %w", path, err)
			}
			all[i] = append(all[i], drawn)
		}
	}
	below := vg.Length(len(p.names))*legendLine + space
	rows, columns := len(panels), len(panels[0])
	img := vgimg.NewWith(vgimg.UseWH(vg.Length(columns)*panelWidth, vg.Length(rows)*panelSize+below), vgimg.UseDPI(160))
	whole := draw.New(img)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: space, PadY: space}
	for i, row := range plot.Align(all, tiles, draw.Crop(whole, space, -space, below, -space)) {
		for j, canvas := range row {
			all[i][j].Draw(canvas)
		}
	}
	p.legend.Draw(draw.Crop(whole, 2*space, 0, 0, below-whole.Max.Y))
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("drawing: %w", err)
	}
	_, err = vgimg.PngCanvas{Canvas: img}.WriteTo(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	return nil
}

// page is one picture.
type page struct {
	legend plot.Legend
	names  []string // of curves; its place is a curve's style
}

func (p *page) draw(panel Panel) (*plot.Plot, error) {
	pl := plot.New()
	pl.Title.Text, pl.X.Label.Text = panel.Title, panel.X
	pl.Title.TextStyle.Font.Size, pl.Title.Padding = fontSize+1.5, vg.Points(4)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		axis.Scale, axis.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		axis.Label.TextStyle.Font.Size, axis.Tick.Label.Font.Size = fontSize, fontSize-0.5
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 225}, color.Gray{Y: 225}
	pl.Add(grid)
	for _, c := range panel.Curves {
		if err := p.add(pl, c); err != nil {
			return nil, fmt.Errorf("curve %s: %w", c.Name, err)
		}
	}
	// Whole decades, so that small differences do not look large.
	pl.Y.Min, pl.Y.Max = math.Pow(10, math.Floor(math.Log10(pl.Y.Min))), math.Pow(10, math.Ceil(math.Log10(pl.Y.Max)))
	pl.X.Min, pl.X.Max = pl.X.Min/1.25, pl.X.Max*1.25
	return pl, nil
}

func (p *page) add(pl *plot.Plot, c Curve) error {
	if len(c.Points) == 0 {
		return nil
	}
	style := slices.Index(p.names, c.Name)
	known := style >= 0
	if !known {
		style = len(p.names)
		p.names = append(p.names, c.Name)
	}
	bars, err := plotter.NewYErrorBars(points(c.Points))
	if err != nil {
		return err
	}
	line, marked, err := plotter.NewLinePoints(points(c.Points))
	if err != nil {
		return err
	}
	colour := colours[style%len(colours)]
	line.LineStyle = draw.LineStyle{Color: colour, Width: vg.Points(1.6)}
	if style%2 == 1 {
		line.Dashes = []vg.Length{vg.Points(6), vg.Points(3)}
	}
	marked.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(3.2), Shape: marks[style%len(marks)]}
	bars.Color = color.RGBA{R: colour.R/2 + 127, G: colour.G/2 + 127, B: colour.B/2 + 127, A: 255}
	pl.Add(bars, line, marked)
	if !known {
		p.legend.Add(c.Name, line, marked)
	}
	return nil
}

// points are medians with their spread, as plotter wants them.
type points []Point

func (p points) Len() int                         { return len(p) }
func (p points) XY(i int) (x, y float64)          { return p[i].X, p[i].Y }
func (p points) YError(i int) (low, high float64) { return p[i].Y - p[i].Low, p[i].High - p[i].Y }

// decades marks the powers of ten, with small marks between.
func decades(low, high float64) (ticks []plot.Tick) {
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		value := math.Pow(10, power)
		ticks = append(ticks, plot.Tick{Value: value, Label: strconv.FormatFloat(value, 'f', -1, 64)})
		for i := 2.0; i < 10; i++ {
			ticks = append(ticks, plot.Tick{Value: i * value})
		}
	}
	// For ticks beyond the axis, plot would leave space.
	return slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value < low*0.999 || t.Value > high*1.001 })
}
