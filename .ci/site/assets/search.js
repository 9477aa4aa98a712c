// The search of the book. Its index is a script, not data to be fetched, so that it
// also works where the pages are opened as files.
'use strict';

const form = document.querySelector('.search');
const input = form.querySelector('input');
const list = form.querySelector('ul');
const count = form.querySelector('.count');
const most = 12;

let sections; // undefined until the index is needed, then a promise of it

function load() {
	sections ??= new Promise((resolve, reject) => {
		window.searchIndex = (entries) => resolve(entries.map(({page, title, anchor, heading, text}) => ({
			url: page + '#' + anchor, title, heading, text,
			folded: [heading, title, text].map((s) => s.toLowerCase()),
		})));
		const script = document.createElement('script');
		script.src = form.dataset.index;
		script.onerror = () => reject(new Error('the index of the book could not be loaded'));
		document.head.append(script);
	});
	return sections;
}

// score tells how well a section answers a query; 0 is not at all. Each word must be there.
function score(section, words) {
	const [heading, title, text] = section.folded;
	let sum = 0;
	for (const word of words) {
		let points = 0;
		if (heading === word) points += 40;
		if (heading.split(/[^\p{L}\p{N}_]+/u).some((w) => w.startsWith(word))) points += 20;
		else if (heading.includes(word)) points += 10;
		if (title.includes(word)) points += 4;
		if (text.includes(word)) points += 1 + Math.min(text.split(word).length - 1, 5) / 5;
		if (!points) return 0;
		sum += points;
	}
	if (heading === words.join(' ')) sum += 40;
	return sum;
}

// marked appends a text to a node, with the words marked.
function marked(node, text, words) {
	const pattern = new RegExp(words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|'), 'gi');
	let end = 0;
	for (const match of text.matchAll(pattern)) {
		const mark = document.createElement('mark');
		mark.textContent = match[0];
		node.append(text.slice(end, match.index), mark);
		end = match.index + match[0].length;
	}
	node.append(text.slice(end));
}

// excerpt is the text around the first of the words.
function excerpt(section, words) {
	const at = Math.min(...words.map((w) => section.folded[2].indexOf(w)).filter((i) => i >= 0));
	const from = Number.isFinite(at) ? Math.max(0, at - 50) : 0;
	return (from ? '… ' : '') + section.text.slice(from, from + 130) + (section.text.length > from + 130 ? ' …' : '');
}

function show(found, words) {
	list.replaceChildren(...found.map((section, i) => {
		const item = document.createElement('li');
		item.id = 'found-' + i;
		item.role = 'option';
		item.ariaSelected = 'false';
		item.dataset.url = section.url;
		const heading = document.createElement('b'), text = document.createElement('small');
		marked(heading, section.heading === section.title ? section.title : section.title + ' › ' + section.heading, words);
		marked(text, excerpt(section, words), words);
		item.append(heading, text);
		return item;
	}));
	list.hidden = !found.length;
	input.ariaExpanded = String(!list.hidden);
	count.textContent = words.length ? (found.length === 1 ? '1 place' : found.length + ' places') + ' found' : '';
	select(found.length ? 0 : -1);
}

function select(i) {
	for (const item of list.children) item.ariaSelected = 'false';
	const item = list.children[i];
	if (!item) {
		input.removeAttribute('aria-activedescendant');
		return;
	}
	item.ariaSelected = 'true';
	item.scrollIntoView({block: 'nearest'});
	input.setAttribute('aria-activedescendant', item.id);
}

function selected() {
	return [...list.children].findIndex((item) => item.ariaSelected === 'true');
}

function go(item) {
	if (!item) return;
	show([], []);
	location.href = item.dataset.url;
}

async function search() {
	const query = input.value;
	const words = query.toLowerCase().split(/\s+/).filter(Boolean);
	if (!words.length) return show([], []);
	try {
		const all = await load();
		if (input.value !== query) return; // the user has typed on meanwhile
		show(all.map((section) => [score(section, words), section]).filter(([points]) => points > 0)
			.sort(([a], [b]) => b - a).slice(0, most).map(([, section]) => section), words);
	} catch (error) {
		count.textContent = error.message;
	}
}

input.addEventListener('focus', () => load().catch(() => {}));
input.addEventListener('input', search);
input.addEventListener('keydown', (event) => {
	const last = list.children.length - 1, now = selected();
	switch (event.key) {
	case 'ArrowDown': select(now < last ? now + 1 : 0); break;
	case 'ArrowUp': select(now > 0 ? now - 1 : last); break;
	case 'Enter': go(list.children[now]); break;
	case 'Escape': input.value = ''; show([], []); input.blur(); break;
	default: return;
	}
	event.preventDefault();
});
form.addEventListener('submit', (event) => event.preventDefault());
form.addEventListener('focusout', (event) => { if (!form.contains(event.relatedTarget)) { list.hidden = true; input.ariaExpanded = 'false'; } });
form.addEventListener('focusin', () => { list.hidden = !list.children.length; input.ariaExpanded = String(!list.hidden); });
list.addEventListener('mousedown', (event) => event.preventDefault()); // the input keeps the focus
list.addEventListener('click', (event) => go(event.target.closest('li')));
document.addEventListener('keydown', (event) => {
	if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select')) return;
	event.preventDefault();
	input.focus();
	input.select();
});

// On a wide window, the list of pages is always open.
const wide = matchMedia('(min-width: 50.01rem)'), pages = document.querySelector('.pages');
const open = () => { pages.open = wide.matches; };
wide.addEventListener('change', open);
open();
