package waitingpage

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/orderly-http/caddy-orderly/modules/serialize/internal/webpage"
)

// Texts are the texts of the waiting page in one language. They avoid numbers
// with nouns, which have many forms in some languages.
type Texts struct {
	heading     string
	number      string // with the place
	next        string // one who is the next
	joining     string // the place is not known yet
	about       string // with the time until the turn
	unknown     string // the time is not known
	paused      string // nobody enters
	keep        string
	reloads     string
	lost        string
	turn        string
	used        string
	again       string
	offline     string
	second      string
	minute      string
	hour        string
	rightToLeft bool
}

const defaultLanguage = "en"

var languages = map[string]*Texts{
	"en": {
		heading: "Waiting in line", number: "You are number %d in line.", next: "You are next.", joining: "You are in line.",
		about: "It will take about %s.", unknown: "How long it will take is not known yet.",
		paused: "The queue is paused. You keep your place.",
		keep:   "Keep this page open. It goes on by itself when it is your turn.", reloads: "It reloads by itself.",
		lost: "Your earlier place is gone. You are at the end of the line now.",
		turn: "It is your turn.", used: "Your turn was used in another tab.", again: "Stand in line again",
		offline: "The connection is lost. Trying again.", second: "s", minute: "min", hour: "h",
	},
	"de": {
		heading: "Bitte warten", number: "Sie sind Nummer %d in der Schlange.", next: "Sie sind als Nächstes dran.", joining: "Sie stehen in der Schlange.",
		about: "Es dauert noch etwa %s.", unknown: "Wie lange es dauert, ist noch nicht bekannt.",
		paused: "Die Schlange ist angehalten. Sie behalten Ihren Platz.",
		keep:   "Lassen Sie diese Seite offen. Es geht von selbst weiter, wenn Sie an der Reihe sind.", reloads: "Sie lädt sich von selbst neu.",
		lost: "Ihr früherer Platz ist vergeben. Sie stehen jetzt am Ende der Schlange.",
		turn: "Sie sind an der Reihe.", used: "Sie sind in einem anderen Tab an die Reihe gekommen.", again: "Noch einmal anstellen",
		offline: "Die Verbindung ist unterbrochen. Neuer Versuch.", second: "s", minute: "min", hour: "h",
	},
	"fr": {
		heading: "File d’attente", number: "Vous êtes numéro %d dans la file.", next: "Vous êtes le prochain.", joining: "Vous êtes dans la file.",
		about: "Encore %s environ.", unknown: "La durée de l’attente n’est pas encore connue.",
		paused: "La file est en pause. Vous gardez votre place.",
		keep:   "Gardez cette page ouverte. Elle continue d’elle-même quand c’est votre tour.", reloads: "Elle se recharge d’elle-même.",
		lost: "Votre place précédente est perdue. Vous êtes maintenant à la fin de la file.",
		turn: "C’est votre tour.", used: "Votre tour a été utilisé dans un autre onglet.", again: "Reprendre une place dans la file",
		offline: "La connexion est interrompue. Nouvel essai.", second: "s", minute: "min", hour: "h",
	},
	"es": {
		heading: "En espera", number: "Es el número %d de la fila.", next: "Es el siguiente.", joining: "Está en la fila.",
		about: "Tardará unos %s.", unknown: "Aún no se sabe cuánto tardará.", //nolint:misspell // Spanish
		paused: "La fila está en pausa. Conserva su puesto.",
		keep:   "Deje esta página abierta. Continúa sola cuando llegue su turno.", reloads: "Se recarga sola.",
		lost: "Ha perdido su puesto anterior. Ahora está al final de la fila.",
		turn: "Es su turno.", used: "Su turno se usó en otra pestaña.", again: "Volver a la fila",
		offline: "Se ha perdido la conexión. Reintentando.", second: "s", minute: "min", hour: "h",
	},
	"pt": {
		heading: "Em espera", number: "Você é o número %d da fila.", next: "Você é o próximo.", joining: "Você está na fila.",
		about: "Faltam cerca de %s.", unknown: "Ainda não se sabe quanto tempo vai levar.",
		paused: "A fila está em pausa. Você mantém o seu lugar.",
		keep:   "Deixe esta página aberta. Ela continua sozinha quando chegar a sua vez.", reloads: "Ela é recarregada sozinha.",
		lost: "Seu lugar anterior foi perdido. Agora você está no fim da fila.",
		turn: "É a sua vez.", used: "A sua vez foi usada em outra aba.", again: "Entrar na fila de novo",
		offline: "A conexão foi perdida. Tentando de novo.", second: "s", minute: "min", hour: "h",
	},
	"it": {
		heading: "In attesa", number: "Lei è il numero %d della fila.", next: "Il prossimo turno è il Suo.", joining: "Lei è in fila.",
		about: "Mancano circa %s.", unknown: "La durata dell’attesa non è ancora nota.",
		paused: "La fila è in pausa. Il Suo posto resta riservato.",
		keep:   "Lasci aperta questa pagina. Prosegue da sola quando è il Suo turno.", reloads: "Si ricarica da sola.",
		lost: "Il Suo posto precedente è andato perso. Ora è in fondo alla fila.",
		turn: "È il Suo turno.", used: "Il Suo turno è stato usato in un’altra scheda.", again: "Rimettersi in fila",
		offline: "La connessione è interrotta. Nuovo tentativo.", second: "s", minute: "min", hour: "h",
	},
	"nl": {
		heading: "In de wachtrij", number: "U bent nummer %d in de rij.", next: "U bent de volgende.", joining: "U staat in de rij.",
		about: "Het duurt nog ongeveer %s.", unknown: "Hoe lang het duurt, is nog niet bekend.",
		paused: "De rij is onderbroken. U houdt uw plaats.",
		keep:   "Houd deze pagina open. Ze gaat vanzelf verder als u aan de beurt bent.", reloads: "Ze wordt vanzelf opnieuw geladen.",
		lost: "Uw eerdere plaats is vervallen. U staat nu achteraan in de rij.",
		turn: "U bent aan de beurt.", used: "Uw beurt is in een ander tabblad gebruikt.", again: "Opnieuw in de rij gaan staan",
		offline: "De verbinding is verbroken. Nieuwe poging.", second: "s", minute: "min", hour: "u",
	},
	"pl": {
		heading: "Kolejka", number: "Twój numer w kolejce: %d.", next: "Następna kolej jest Twoja.", joining: "Czekasz w kolejce.",
		about: "Potrwa to jeszcze około %s.", unknown: "Czas oczekiwania nie jest jeszcze znany.",
		paused: "Kolejka jest wstrzymana. Twoje miejsce pozostaje zajęte.",
		keep:   "Nie zamykaj tej strony. Przejdzie dalej sama, gdy nadejdzie Twoja kolej.", reloads: "Odświeża się sama.",
		lost: "Poprzednie miejsce przepadło. Jesteś teraz na końcu kolejki.",
		turn: "Twoja kolej.", used: "Twoja kolej została wykorzystana w innej karcie.", again: "Stań w kolejce ponownie",
		offline: "Połączenie zostało przerwane. Kolejna próba.", second: "s", minute: "min", hour: "godz.",
	},
	"ru": {
		heading: "Очередь", number: "Ваш номер в очереди: %d.", next: "Вы следующий в очереди.", joining: "Вы в очереди.",
		about: "Осталось примерно %s.", unknown: "Время ожидания пока неизвестно.",
		paused: "Очередь приостановлена. Ваше место сохраняется.",
		keep:   "Не закрывайте эту страницу. Она продолжит сама, когда подойдёт ваша очередь.", reloads: "Она обновляется сама.",
		lost: "Ваше прежнее место потеряно. Теперь вы в конце очереди.",
		turn: "Ваша очередь подошла.", used: "Ваша очередь использована в другой вкладке.", again: "Встать в очередь снова",
		offline: "Соединение потеряно. Повторная попытка.", second: "с", minute: "мин", hour: "ч",
	},
	"tr": {
		heading: "Sıra bekleniyor", number: "Sıradaki yeriniz: %d.", next: "Sıradaki sizsiniz.", joining: "Sıradasınız.",
		about: "Kalan süre: yaklaşık %s.", unknown: "Ne kadar süreceği henüz bilinmiyor.",
		paused: "Sıra durduruldu. Yeriniz korunuyor.",
		keep:   "Bu sayfayı açık tutun. Sıranız geldiğinde kendiliğinden devam eder.", reloads: "Kendiliğinden yenilenir.",
		lost: "Önceki yeriniz kayboldu. Şimdi sıranın sonundasınız.",
		turn: "Sıra sizde.", used: "Sıranız başka bir sekmede kullanıldı.", again: "Yeniden sıraya gir",
		offline: "Bağlantı koptu. Yeniden deneniyor.", second: "sn", minute: "dk", hour: "sa",
	},
	"ar": {
		heading: "في قائمة الانتظار", number: "رقمك في الطابور: %d.", next: "دورك هو التالي.", joining: "أنت في الطابور.",
		about: "الوقت المتبقي نحو %s.", unknown: "مدة الانتظار غير معروفة بعد.",
		paused: "الطابور متوقف مؤقتًا. مكانك محفوظ.",
		keep:   "أبقِ هذه الصفحة مفتوحة. ستتابع تلقائيًا عندما يحين دورك.", reloads: "تُحدَّث تلقائيًا.",
		lost: "فُقد مكانك السابق. أنت الآن في آخر الطابور.",
		turn: "حان دورك.", used: "استُخدم دورك في علامة تبويب أخرى.", again: "العودة إلى الطابور",
		offline: "انقطع الاتصال. تجري المحاولة من جديد.", second: "ث", minute: "د", hour: "س", rightToLeft: true,
	},
	"zh": {
		heading: "正在排队", number: "您排在第 %d 位。", next: "下一位就是您。", joining: "您已在队列中。",
		about: "大约还需 %s。", unknown: "尚不清楚需要等待多久。",
		paused: "队列已暂停，您的位置会保留。",
		keep:   "请保持此页面打开。轮到您时会自动继续。", reloads: "页面会自动刷新。",
		lost: "您之前的位置已失效，现在排在队尾。",
		turn: "轮到您了。", used: "您的机会已在另一个标签页中使用。", again: "重新排队",
		offline: "连接已断开，正在重试。", second: "秒", minute: "分钟", hour: "小时",
	},
	"ja": {
		heading: "順番待ち", number: "現在 %d 番目です。", next: "次はあなたの番です。", joining: "順番を待っています。",
		about: "あと約 %s です。", unknown: "待ち時間はまだわかりません。",
		paused: "順番待ちは一時停止中です。順番はそのまま保たれます。",
		keep:   "このページを開いたままにしてください。順番が来ると自動的に進みます。", reloads: "ページは自動的に再読み込みされます。",
		lost: "以前の順番は失われました。現在は列の最後です。",
		turn: "あなたの番です。", used: "順番は別のタブで使われました。", again: "もう一度並ぶ",
		offline: "接続が切れました。再試行しています。", second: "秒", minute: "分", hour: "時間",
	},
}

// In returns the texts in a language.
func In(language string) *Texts { return languages[language] }

// Title is the title of the page, with the place in front: tabs show little of it.
func (t *Texts) Title(p Place) string {
	switch {
	case p.Turn:
		return t.turn
	case p.Place == 0:
		return t.heading
	}
	return fmt.Sprintf("(%d) %s", p.Place, t.heading)
}

// Place says where the browser stands.
func (t *Texts) Place(p Place) string {
	switch {
	case p.Turn:
		return t.turn
	case p.Place == 0:
		return t.joining
	case p.Place == 1:
		return t.next
	}
	return fmt.Sprintf(t.number, p.Place)
}

// Estimate says how long it will take.
func (t *Texts) Estimate(p Place) string {
	switch {
	case p.Turn:
		return ""
	case p.Paused:
		return t.paused
	case p.Estimate == 0:
		return t.unknown
	}
	return fmt.Sprintf(t.about, t.span(p.Estimate))
}

// span is a time, rounded up as befits a guess.
func (t *Texts) span(d time.Duration) string {
	switch {
	case d <= time.Minute:
		return fmt.Sprintf("%.0f %s", 10*math.Ceil(d.Seconds()/10), t.second)
	case d <= time.Hour:
		return fmt.Sprintf("%.0f %s", math.Ceil(d.Minutes()), t.minute)
	}
	tens := int(math.Ceil(d.Minutes() / 10))
	return fmt.Sprintf("%d %s %d %s", tens/6, t.hour, tens%6*10, t.minute)
}

// ChooseLanguage picks the language that a reader prefers, of those available.
func ChooseLanguage(accept []string) string {
	chosen, best := defaultLanguage, 0.0
	for text := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		tag, params, _ := strings.Cut(text, ";")
		primary, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		if languages[primary] == nil {
			continue
		}
		if q := webpage.QualityParam(params); q > best {
			chosen, best = primary, q
		}
	}
	return chosen
}
