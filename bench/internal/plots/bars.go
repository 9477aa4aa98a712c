package plots

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// Bar is one of a row: a median with the least and the most, and what is
// written beside it.
type Bar struct {
	Name      string
	Value     float64
	Low, High float64
	Ours      bool
	Note      string
}

// Bars are horizontal bars, the first on top.
type Bars struct {
	Title, X string
	Bars     []Bar
	Legend   [2]string // ours and theirs
}

// Save draws the bars as a PNG file.
func (b Bars) Save(path string) error {
	pl := plot.New()
	pl.Title.Text, pl.X.Label.Text = b.Title, b.X
	pl.Title.TextStyle.Font.Size = titleSize
	pl.Title.Padding = vg.Millimeter * 3
	pl.X.Label.TextStyle.Font.Size, pl.X.Tick.Label.Font.Size, pl.Y.Tick.Label.Font.Size = fontSize, fontSize, fontSize
	pl.X.Min = 0
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Width = grid, 0
	pl.Add(lines)
	if err := b.addTo(pl); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	pl.Y.Tick.Length = 0
	pl.Legend.Top, pl.Legend.Left = true, false
	pl.Legend.TextStyle.Font.Size = fontSize
	pl.Legend.Padding = vg.Millimeter
	pl.Legend.YOffs, pl.Legend.XOffs = -vg.Millimeter*4, -vg.Millimeter*2

	height := vg.Length(len(b.Bars))*0.72*vg.Centimeter + 2.8*vg.Centimeter
	img := vgimg.NewWith(vgimg.UseWH(20*vg.Centimeter, height), vgimg.UseDPI(dpi))
	pl.Draw(draw.Crop(draw.New(img), margin, -margin, margin, -margin))
	return save(img, path)
}

func (b Bars) addTo(pl *plot.Plot) error {
	names := make([]string, len(b.Bars))
	most := 0.0
	notes := plotter.XYLabels{}
	for i, bar := range b.Bars {
		at := len(b.Bars) - 1 - i
		names[at] = bar.Name
		drawn, err := plotter.NewBarChart(plotter.Values{bar.Value}, vg.Centimeter*0.48)
		if err != nil {
			return err
		}
		drawn.Horizontal, drawn.XMin = true, float64(at)
		drawn.Color, drawn.LineStyle.Width = b.colour(bar), 0
		pl.Add(drawn)
		most = max(most, bar.High)
		notes.XYs = append(notes.XYs, plotter.XY{X: bar.High, Y: float64(at)})
		notes.Labels = append(notes.Labels, "  "+bar.Note)
	}
	errs, err := plotter.NewXErrorBars(spreads(b.Bars))
	if err != nil {
		return err
	}
	errs.Color = color.Gray{Y: 60}
	labels, err := plotter.NewLabels(notes)
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Font.Size = fontSize
		labels.TextStyle[i].YAlign = draw.YCenter
	}
	pl.Add(errs, labels)
	pl.NominalY(names...)
	pl.X.Max = most * 1.12
	for i, text := range b.Legend {
		pl.Legend.Add(text, swatch{colours[swatches[i]]})
	}
	return nil
}

// swatches are the colours of ours and theirs.
var swatches = [2]int{1, 6}

func (b Bars) colour(bar Bar) color.Color {
	if bar.Ours {
		return colours[swatches[0]]
	}
	return colours[swatches[1]]
}

type swatch struct{ color.Color }

// Thumbnail implements [plot.Thumbnailer].
func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{c.Min, {X: c.Min.X, Y: c.Max.Y}, c.Max, {X: c.Max.X, Y: c.Min.Y}})
}

// spreads are bars with their spread, as plotter wants them; the last is at
// the bottom.
type spreads []Bar

func (s spreads) Len() int                { return len(s) }
func (s spreads) XY(i int) (x, y float64) { return s[i].Value, float64(len(s) - 1 - i) }
func (s spreads) XError(i int) (low, high float64) {
	return s[i].Value - s[i].Low, s[i].High - s[i].Value
}
