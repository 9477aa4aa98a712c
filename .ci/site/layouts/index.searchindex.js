{{- /* One entry for each heading: page, its title, anchor, heading, text below it. */ -}}
{{- $entries := slice -}}
{{- range partialCached "pages.html" . -}}
{{- $page := . -}}
{{- $title := partialCached "title.html" . .RelPermalink -}}
{{- $sections := after 1 (split (replaceRE `<h([1-6]) id="` "\x01" .Content) "\x01") -}}
{{- range $sections -}}
{{- $anchor := index (split . `"`) 0 -}}
{{- $heading := replaceRE `(?s)^[^>]*>(.*?)</h[1-6]>.*$` "$1" . | plainify | htmlUnescape | strings.TrimPrefix " " | strings.TrimSuffix " " -}}
{{- $text := replaceRE `(?s)^.*?</h[1-6]>` "" . -}}
{{- $text = replaceRE `</(td|th|li|p|tr|pre)>` " $0" $text | plainify | htmlUnescape -}}
{{- $text = replaceRE `\s+` " " $text | strings.TrimPrefix " " | strings.TrimSuffix " " -}}
{{- $entries = $entries | append (dict "page" (partialCached "name.html" $page $page.RelPermalink) "title" $title "anchor" $anchor "heading" $heading "text" $text) -}}
{{- end -}}
{{- end -}}
searchIndex({{ $entries | jsonify }});
