// Package plots draws curves and bars for people, also for those who see few
// colours: each curve has a colour, a mark and a dash of its own.
package plots

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

	"github.com/orderly-http/caddy-orderly/bench/internal/results"
)

// Point is a median with the least and the most.
type Point struct{ X, Y, Low, High float64 }

// Curve is one line. Curves of the same style look alike in all panels.
type Curve struct {
	Name   string
	Style  int
	Points []Point
}

// Panel is one pair of axes, both logarithmic.
type Panel struct {
	Title  string // says what the y axis shows
	X      string
	Curves []Curve
	XTicks []float64
}

// Figure is a picture of several panels in rows, with one legend.
type Figure struct {
	Title  string
	Panels [][]Panel
}

// The palette of Okabe and Ito, without its yellow, which is hard to see on
// white.
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

var dashes = [][]vg.Length{
	{vg.Points(1.5), vg.Points(2.5)}, nil, nil, nil, {vg.Points(6), vg.Points(3)}, {vg.Points(6), vg.Points(2), vg.Points(1.5), vg.Points(2)}, nil,
}

var grid = color.Gray{Y: 225}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}

const (
	dpi        = 160
	fontSize   = vg.Length(9)
	titleSize  = vg.Length(13)
	panelSize  = 8 * vg.Centimeter
	panelWidth = 11 * vg.Centimeter
	titleSpace = 0.9 * vg.Centimeter
	legendLine = 0.62 * vg.Centimeter
	margin     = 0.35 * vg.Centimeter
)

// Save draws the figure as a PNG file.
func (f Figure) Save(path string) error {
	rows, columns := len(f.Panels), len(f.Panels[0])
	legend := f.legend(columns)
	height := vg.Length(rows)*panelSize + titleSpace + legend.height() + 2*margin
	width := vg.Length(columns)*panelWidth + 2*margin
	img := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	page := draw.Crop(draw.New(img), margin, -margin, margin, -margin)
	f.drawTitle(page)
	legend.draw(draw.Crop(page, 0, 0, 0, legend.height()-page.Max.Y+page.Min.Y))
	body := draw.Crop(page, 0, 0, legend.height(), -titleSpace)

	all := make([][]*plot.Plot, rows)
	for i, row := range f.Panels {
		for _, p := range row {
			drawn, err := p.plot()
			if err != nil {
				return fmt.Errorf("drawing %s: %w", path, err)
			}
			all[i] = append(all[i], drawn)
		}
	}
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4}
	for i, row := range plot.Align(all, tiles, body) {
		for j, canvas := range row {
			all[i][j].Draw(canvas)
		}
	}
	return save(img, path)
}

func save(img *vgimg.Canvas, path string) error {
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

func (f Figure) drawTitle(c draw.Canvas) {
	style := plot.New().Title.TextStyle
	style.Font.Size = titleSize
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	c.FillText(style, vg.Point{X: c.Center().X, Y: c.Max.Y}, f.Title)
}

func (p Panel) plot() (*plot.Plot, error) {
	pl := plot.New()
	pl.Title.Text, pl.X.Label.Text = p.Title, p.X
	pl.Title.TextStyle.Font.Size = fontSize + 1.5
	pl.Title.Padding = vg.Points(4)
	for _, axis := range []*plot.Axis{&pl.X, &pl.Y} {
		axis.Scale = plot.LogScale{}
		axis.Tick.Marker = plot.TickerFunc(decades)
		axis.Label.TextStyle.Font.Size = fontSize
		axis.Tick.Label.Font.Size = fontSize - 0.5
	}
	if p.XTicks != nil {
		pl.X.Tick.Marker = at(p.XTicks)
	}
	lines := plotter.NewGrid()
	lines.Horizontal.Color, lines.Vertical.Color = grid, grid
	pl.Add(lines)
	for _, c := range p.Curves {
		if err := c.addTo(pl); err != nil {
			return nil, err
		}
	}
	// Whole decades, so that small differences do not look large.
	pl.Y.Min = math.Pow(10, math.Floor(math.Log10(pl.Y.Min)))
	pl.Y.Max = math.Pow(10, math.Ceil(math.Log10(pl.Y.Max)))
	pl.X.Min, pl.X.Max = pl.X.Min/1.25, pl.X.Max*1.25
	return pl, nil
}

// ranges are points with their spread, as plotter wants them.
type ranges []Point

func (r ranges) Len() int                         { return len(r) }
func (r ranges) XY(i int) (x, y float64)          { return r[i].X, r[i].Y }
func (r ranges) YError(i int) (low, high float64) { return r[i].Y - r[i].Low, r[i].High - r[i].Y }

func (c Curve) addTo(pl *plot.Plot) error {
	if len(c.Points) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(ranges(c.Points))
	if err != nil {
		return fmt.Errorf("curve %s: %w", c.Name, err)
	}
	bars.Color = faint(c.colour())
	line, points, err := plotter.NewLinePoints(ranges(c.Points))
	if err != nil {
		return fmt.Errorf("curve %s: %w", c.Name, err)
	}
	line.LineStyle, points.GlyphStyle = c.line(), c.glyph()
	pl.Add(bars, line, points)
	return nil
}

func (c Curve) colour() color.RGBA { return colours[c.Style%len(colours)] }

func faint(c color.RGBA) color.RGBA {
	half := func(v uint8) uint8 { return v/2 + 127 }
	return color.RGBA{R: half(c.R), G: half(c.G), B: half(c.B), A: 255}
}

func (c Curve) line() draw.LineStyle {
	return draw.LineStyle{Color: c.colour(), Width: vg.Points(1.6), Dashes: dashes[c.Style%len(dashes)]}
}

func (c Curve) glyph() draw.GlyphStyle {
	return draw.GlyphStyle{Color: c.colour(), Radius: vg.Points(3.2), Shape: marks[c.Style%len(marks)]}
}

// decades marks the powers of ten, with small marks between.
func decades(low, high float64) (ticks []plot.Tick) {
	for power := math.Floor(math.Log10(low)); power <= math.Ceil(math.Log10(high)); power++ {
		value := math.Pow(10, power)
		ticks = append(ticks, plot.Tick{Value: value, Label: label(value)})
		for i := 2.0; i < 10; i++ {
			ticks = append(ticks, plot.Tick{Value: i * value})
		}
	}
	// For ticks beyond the axis, plot would leave space.
	return slices.DeleteFunc(ticks, func(t plot.Tick) bool { return t.Value < low*0.999 || t.Value > high*1.001 })
}

func at(values []float64) plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, v := range values {
		ticks = append(ticks, plot.Tick{Value: v, Label: label(v)})
	}
	return ticks
}

// label writes a number as people do: 10,000 and 0.1.
func label(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if v < 1 {
		text = strconv.FormatFloat(v, 'g', 3, 64)
	}
	return results.Thousands(text)
}
